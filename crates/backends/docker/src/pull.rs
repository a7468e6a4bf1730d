//! Images that the engine does not have yet, fetched by it, with steps for whoever watches.

use std::collections::BTreeSet;

use belljar_backend::{FetchState, FetchStep, Result};
use belljar_codes::Code;
use bollard::Docker as Client;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::StreamExt;
use tokio::sync::mpsc;

use crate::failure::failed;

/// Has the engine fetch an image. Steps that nobody takes in time are left out.
pub(crate) async fn fetch(
    client: &Client,
    name: &str,
    steps: Option<&mpsc::Sender<FetchStep>>,
) -> Result<()> {
    // Without a tag an engine would fetch every one there is.
    let whole = match name.rsplit('/').next().unwrap_or(name).contains([':', '@']) {
        true => name.to_owned(),
        false => format!("{name}:latest"),
    };
    let options = CreateImageOptionsBuilder::new().from_image(&whole).build();
    let mut progress = client.create_image(Some(options), None, None);
    let mut unfinished = BTreeSet::new();
    while let Some(told) = progress.next().await {
        let told = told.map_err(|error| {
            let mut failure = failed(format!("image `{name}` cannot be fetched"), error);
            failure.code = Code::TemplateNotFound;
            failure
                .with_remedy("look for a mistake in its name, and whether the engine may fetch it")
        })?;
        if let (Some(steps), Some(step)) = (steps, step(told)) {
            match step.state {
                FetchState::Done => unfinished.remove(&step.part),
                _ => unfinished.insert(step.part.clone()),
            };
            let _ = steps.try_send(step);
        }
    }
    // Podman does not say of each part that it is there: all of them are once it has nothing more to say.
    for part in unfinished {
        let done = FetchStep { part, state: FetchState::Done, bytes: None, of: None };
        let _ = steps.map(|steps| steps.try_send(done));
    }
    Ok(())
}

/// What the engine says about one part of an image; `None` for what is about the whole.
fn step(told: CreateImageInfo) -> Option<FetchStep> {
    let state = match told.status.as_deref()? {
        "Pulling fs layer" | "Waiting" => FetchState::Waiting,
        "Downloading" => FetchState::Coming,
        "Download complete" | "Verifying Checksum" | "Extracting" => FetchState::Unpacking,
        "Pull complete" | "Already exists" => FetchState::Done,
        _ => return None,
    };
    let detail = told.progress_detail.unwrap_or_default();
    let number = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
    let counts = state == FetchState::Coming;
    Some(FetchStep {
        part: told.id?,
        state,
        bytes: number(detail.current).filter(|_| counts),
        of: number(detail.total).filter(|_| counts),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::ProgressDetail;

    #[test]
    fn what_an_engine_says_of_parts_and_of_the_whole() {
        let told = |status: &str, id: Option<&str>, current| CreateImageInfo {
            id: id.map(str::to_owned),
            status: Some(status.to_owned()),
            progress_detail: Some(ProgressDetail { current, total: Some(9) }),
            ..CreateImageInfo::default()
        };
        let coming = step(told("Downloading", Some("a"), Some(5))).unwrap();
        assert_eq!((coming.state, coming.bytes, coming.of), (FetchState::Coming, Some(5), Some(9)));
        let unpacking = step(told("Extracting", Some("a"), Some(5))).unwrap();
        assert_eq!((unpacking.state, unpacking.bytes), (FetchState::Unpacking, None));
        assert_eq!(step(told("Pulling from x", Some("latest"), None)), None);
        assert_eq!(step(told("Downloading", None, None)), None);
    }
}
