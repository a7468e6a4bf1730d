//! Bodies on their way: counted, cut when their request is no longer allowed, rewritten where they must be.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::HeaderMap;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};

use super::exchange::Exchange;
use crate::credentials::{Replacements, Rewriter};
use crate::flow::Direction;

pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;
pub(super) type Body = UnsyncBoxBody<Bytes, Failure>;

pub(super) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Cut {
    #[error("the request is no longer allowed")]
    Revoked,
    #[error("a budget is spent")]
    Spent,
    #[error("the body is larger than what can be held")]
    TooLarge,
}

struct Passing {
    body: Incoming,
    exchange: Arc<Exchange>,
    direction: Direction,
    rewriter: Option<Rewriter>,
    replacements: Replacements,
    trailers: Option<HeaderMap>,
    ended: bool,
}

/// A body that is passed on as it comes.
pub(super) fn passing(
    body: Incoming,
    exchange: Arc<Exchange>,
    direction: Direction,
    replacements: Replacements,
) -> Body {
    if body.is_end_stream() {
        return empty();
    }
    let rewriter = (!replacements.is_empty()).then(|| Rewriter::new(replacements.clone()));
    let (trailers, ended) = (None, false);
    let passing = Passing { body, exchange, direction, rewriter, replacements, trailers, ended };
    let frames = stream::unfold(Some(passing), |passing| async move {
        let mut passing = passing?;
        match passing.next().await {
            Ok(Some(frame)) => Some((Ok(frame), Some(passing))),
            Ok(None) => None,
            Err(failure) => Some((Err(failure), None)),
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

impl Passing {
    async fn next(&mut self) -> Result<Option<Frame<Bytes>>, Failure> {
        loop {
            if let Some(trailers) = self.trailers.take() {
                return Ok(Some(Frame::trailers(trailers)));
            }
            if self.ended {
                return Ok(None);
            }
            let frame = tokio::select! {
                biased;
                () = self.exchange.revoked() => return Err(Cut::Revoked.into()),
                frame = self.body.frame() => frame,
            };
            let data = match frame.transpose()? {
                None => self.end(None),
                Some(frame) => match frame.into_data() {
                    Ok(data) => {
                        let counted = self.exchange.count(self.direction, data.len()).await;
                        counted.map_err(|_| Cut::Spent)?;
                        match &mut self.rewriter {
                            Some(rewriter) => rewriter.push(data),
                            None => data,
                        }
                    }
                    Err(frame) => {
                        let mut trailers = frame.into_trailers().unwrap_or_default();
                        let counted = self.exchange.count(self.direction, length(&trailers)).await;
                        counted.map_err(|_| Cut::Spent)?;
                        hide(&mut trailers, &self.replacements);
                        self.end(Some(trailers))
                    }
                },
            };
            if !data.is_empty() {
                return Ok(Some(Frame::data(data)));
            }
        }
    }

    /// What was held back comes before the trailers.
    fn end(&mut self, trailers: Option<HeaderMap>) -> Bytes {
        (self.trailers, self.ended) = (trailers, true);
        self.rewriter.as_mut().map(Rewriter::finish).unwrap_or_default()
    }
}

/// How many bytes the fields take, as HTTP/1.1 writes them.
pub(super) fn length(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum()
}

/// Replaces in the values of headers.
pub(super) fn hide(headers: &mut HeaderMap, replacements: &Replacements) {
    if replacements.is_empty() {
        return;
    }
    for value in headers.values_mut() {
        if let Some(new) = replacements.apply(value.as_bytes()) {
            *value = http::HeaderValue::from_bytes(&new)
                .unwrap_or_else(|_| http::HeaderValue::from_static(""));
        }
    }
}

/// Reads all of a body that must be known before it is sent.
pub(super) async fn gathered(
    body: Incoming,
    exchange: &Arc<Exchange>,
    most: usize,
) -> Result<Bytes, Failure> {
    let mut body = passing(body, Arc::clone(exchange), Direction::Up, Replacements::default());
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await.transpose()? {
        if let Ok(data) = frame.into_data() {
            if all.len() + data.len() > most {
                return Err(Cut::TooLarge.into());
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(all.into())
}
