//! How long a client may take.

use std::error::Error;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use belljar_codes::Code;
use http::Version;
use http_body_util::BodyExt;
use tonic::Status;
use tower_http::timeout::{TimeoutBody, TimeoutError};

use crate::problem::Problem;

/// Whoever opens a conversation says soon what it is about.
pub(crate) const FIRST_WORD: Duration = Duration::from_secs(30);

/// The methods whose callers go on talking.
const STREAMS: [&str; 5] = [
    "/belljar.v1.Callbacks/Serve",
    "/belljar.v1.Files/WriteArchive",
    "/belljar.v1.Files/WriteFile",
    "/belljar.v1.Ports/ForwardPort",
    "/belljar.v1.Processes/WriteInput",
];

/// The time a client has to say what it wants.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the whole head of a request, from the connection on.
    pub head: Duration,
    /// Between two pieces of a request's body.
    pub body: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { head: Duration::from_secs(60), body: Duration::from_secs(30) }
    }
}

impl Patience {
    /// Who sends one message has no reason to stop in its middle. Streams may be silent for as long as they like where the
    /// connection itself gives signs of life, as HTTP/2 does.
    ///
    /// For gRPC, which knows only its own statuses and takes any other error for a message that makes no sense.
    pub(crate) fn bound(self, request: Request) -> Request {
        let alive = request.version() == Version::HTTP_2;
        if alive && STREAMS.contains(&request.uri().path()) {
            return request;
        }
        self.bound_body(request).map(|body| {
            Body::new(body.map_err(|error| match is_stalled(&error) {
                true => Status::deadline_exceeded("nothing more came").into(),
                false => error.into_inner(),
            }))
        })
    }

    /// A body of which nothing comes for too long is given up.
    pub(crate) fn bound_body(self, request: Request) -> Request {
        request.map(|body| Body::new(TimeoutBody::new(self.body, body)))
    }
}

/// Whether a body ended with this error because nothing more came of it.
pub(crate) fn is_stalled(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| Error::source(*error))
        .any(|error| error.is::<TimeoutError>())
}

pub(crate) fn stalled() -> Problem {
    Problem::new(Code::RequestTimedOut, "the body stalled").with_remedy("send without long pauses")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_message_does_not_stop_in_its_middle_and_a_stream_may() {
        let ends = async |path: &str, version| {
            let body = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
            let request = Request::post(path).version(version).body(body).unwrap();
            let body = Patience::default().bound(request).into_body();
            tokio::time::timeout(Duration::from_secs(3600), body.collect()).await.is_ok()
        };
        for version in [Version::HTTP_11, Version::HTTP_2] {
            assert!(ends("/belljar.v1.Sandboxes/CreateSandbox", version).await);
            assert!(ends("/belljar.v1.Processes/Exec", version).await);
        }
        assert!(!ends("/belljar.v1.Processes/WriteInput", Version::HTTP_2).await);
        // By gRPC-Web nothing tells a silent client from one that is gone.
        assert!(ends("/belljar.v1.Processes/WriteInput", Version::HTTP_11).await);
    }

    /// The methods of a definition that take a stream, however its lines are broken.
    fn taking_streams(definition: &str) -> Vec<String> {
        let code: Vec<_> =
            definition.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
        let code = code.join(" ").replace('(', " ( ");
        let words: Vec<_> = code.split_whitespace().collect();
        let (mut service, mut found) = ("", Vec::new());
        for words in words.windows(4) {
            match words {
                ["service", name, "{", _] => service = name,
                ["rpc", method, "(", "stream"] => {
                    found.push(format!("/belljar.v1.{service}/{method}"));
                }
                _ => {}
            }
        }
        found
    }

    #[test]
    fn the_methods_whose_callers_go_on_talking_are_known() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../api/proto/belljar/v1");
        let files = std::fs::read_dir(directory).unwrap();
        let mut found: Vec<_> = files
            .flat_map(|file| {
                taking_streams(&std::fs::read_to_string(file.unwrap().path()).unwrap())
            })
            .collect();
        found.sort();
        assert_eq!(found, STREAMS);
        let broken = "// rpc No(stream A)\nservice Some {\n  rpc One(A) returns (stream A);\n  rpc Two(\n      \
            stream A) returns (A);\n  rpc\n    Three(stream A) returns (A);\n}";
        assert_eq!(taking_streams(broken), ["/belljar.v1.Some/Two", "/belljar.v1.Some/Three"]);
    }
}
