//! A client of this process that answers for a sandbox, over gRPC, as any other does.

use belljar_api::v1;
use belljar_client::Client;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::ReceiverStream;

use crate::failure::Failure;

/// Gives every call the answer that `answer` makes of it, until aborted. Returns when calls come.
pub(super) async fn answer(
    client: &Client,
    hello: v1::CallbackHello,
    answer: impl Fn(v1::CallbackCall) -> v1::CallbackAnswer + Send + 'static,
) -> Result<AbortHandle, Failure> {
    let (to_server, messages) = mpsc::channel(256);
    let hello = v1::ClientCallback { hello: Some(hello), ..Default::default() };
    // The channel is empty and its other end is held below.
    let _ = to_server.send(hello).await;
    let serving = client.callbacks.clone().serve(ReceiverStream::new(messages)).await?;
    let mut calls = serving.into_inner();
    // The first message says that calls come from here on.
    calls.message().await?;
    let task = tokio::spawn(async move {
        while let Ok(Some(message)) = calls.message().await {
            let Some(call) = message.call else { continue };
            let call_id = call.call_id;
            let answer = v1::CallbackAnswer { call_id, ..answer(call) };
            let answer = v1::ClientCallback { answer: Some(answer), ..Default::default() };
            if to_server.send(answer).await.is_err() {
                return;
            }
        }
    });
    Ok(task.abort_handle())
}
