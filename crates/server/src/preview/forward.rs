//! One request, handed to a port of a sandbox, and its answer.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use belljar_codes::Code;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode, Version};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::admission::{without_cookie, without_token};
use super::{KEY_HEADERS, TOKEN_HEADER, host, secret_in};
use crate::problem::{Problem, Result};

/// How a port was asked for, which decides what a browser may make of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// By a name of its own. `identified`: by a key of ours, which stays here.
    Name { identified: bool },
    /// By a path of the API, of which this is what leads to the port.
    Path { prefix: String },
}

/// Marks an answer as a sandbox's own: nothing is said in its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forwarded;

/// They are about one connection, not about what is said on it.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What a page that is shown by a path of the API may not do to the API's origin.
const NOT_BY_PATH: [&str; 5] = [
    "set-cookie",
    "service-worker-allowed",
    "clear-site-data",
    "strict-transport-security",
    "access-control-allow-origin",
];

/// A document without an origin: its scripts run and can act as nobody.
const WITHOUT_ORIGIN: HeaderValue = HeaderValue::from_static(
    "sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads",
);

/// `held` is kept until both sides are done where they go on in another protocol.
pub(crate) async fn forward(
    tunnel: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    mut request: Request<Body>,
    form: &Form,
    held: impl Send + 'static,
) -> Result<Response> {
    let visitor = wants_upgrade(request.headers()).then(|| hyper::upgrade::on(&mut request));
    let request = inward(request, form, visitor.is_some())?;
    let (mut sender, connection) = http1::Builder::new()
        .handshake::<_, Body>(TokioIo::new(tunnel))
        .await
        .map_err(|error| broken(&error))?;
    tokio::spawn(connection.with_upgrades());
    let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
    let mut response = response.map(Body::new);
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(visitor) = visitor else {
            return Err(Problem::new(
                Code::PortUnreachable,
                "what listens there changes the protocol without being asked",
            ));
        };
        let inside = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            let _held = held;
            join(visitor, inside).await;
        });
        outward(response.headers_mut(), form, true);
    } else {
        outward(response.headers_mut(), form, false);
    }
    *response.version_mut() = Version::default();
    response.extensions_mut().insert(Forwarded);
    Ok(response)
}

/// The request as what listens inside gets it.
fn inward(request: Request<Body>, form: &Form, upgrade: bool) -> Result<Request<Body>> {
    let (mut parts, body) = request.into_parts();
    let asked = host(&parts.uri, &parts.headers).map(str::to_owned);
    let (path, query) = (parts.uri.path(), parts.uri.query());
    let path = match form {
        Form::Name { .. } => path,
        Form::Path { prefix } => path.strip_prefix(prefix.as_str()).unwrap_or("/"),
    };
    let rest = without_token("/", query);
    let rest = rest.strip_prefix('/').unwrap_or_default();
    parts.uri = format!("/{}{rest}", path.strip_prefix('/').unwrap_or(path))
        .parse()
        .map_err(|_| Problem::invalid("the path cannot be handed on"))?;
    parts.version = Version::HTTP_11;
    let headers = &mut parts.headers;
    let protocol = upgrade.then(|| headers.get(header::UPGRADE).cloned()).flatten();
    strip(headers);
    headers.remove(TOKEN_HEADER);
    let by_key = match form {
        Form::Name { identified } => *identified,
        Form::Path { .. } => true,
    };
    for name in KEY_HEADERS {
        // The gate has taken out what opens something; what once did is nobody's business either.
        if by_key || headers.get_all(&name).iter().any(is_our_key) {
            headers.remove(&name);
        }
    }
    let cookies: Vec<_> = headers.get_all(header::COOKIE).into_iter().cloned().collect();
    headers.remove(header::COOKIE);
    for line in cookies.iter().filter_map(|line| line.to_str().ok()).filter_map(without_cookie) {
        if let (Form::Name { .. }, Ok(line)) = (form, HeaderValue::from_str(&line)) {
            headers.append(header::COOKIE, line);
        }
    }
    if let Some(protocol) = protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
    if let Some(asked) = asked.and_then(|asked| HeaderValue::from_str(&asked).ok()) {
        headers.insert("x-forwarded-host", asked.clone());
        headers.insert(header::HOST, asked);
    }
    if let Form::Path { prefix } = form
        && let Ok(prefix) = HeaderValue::from_str(prefix)
    {
        headers.insert("x-forwarded-prefix", prefix);
    }
    Ok(Request::from_parts(parts, body))
}

fn is_our_key(value: &HeaderValue) -> bool {
    secret_in(value).starts_with("bj_")
}

/// The answer as the visitor gets it.
fn outward(headers: &mut HeaderMap, form: &Form, upgrade: bool) {
    let protocol = upgrade.then(|| headers.get(header::UPGRADE).cloned()).flatten();
    strip(headers);
    if let Some(protocol) = protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
    match form {
        Form::Path { .. } => {
            for name in NOT_BY_PATH {
                headers.remove(name);
            }
            headers.append(header::CONTENT_SECURITY_POLICY, WITHOUT_ORIGIN);
        }
        Form::Name { .. } => {
            let cookies: Vec<_> =
                headers.get_all(header::SET_COOKIE).into_iter().filter_map(for_this_name).collect();
            headers.remove(header::SET_COOKIE);
            for cookie in cookies {
                headers.append(header::SET_COOKIE, cookie);
            }
        }
    }
}

/// A cookie of one sandbox is not for the names of others, nor for ours.
fn for_this_name(cookie: &HeaderValue) -> Option<HeaderValue> {
    let parts = cookie.to_str().ok()?.split(';').map(str::trim);
    let kept: Vec<_> = parts
        .filter(|part| {
            let name = part.split('=').next().unwrap_or_default().trim();
            !name.eq_ignore_ascii_case("domain")
        })
        .collect();
    HeaderValue::from_str(&kept.join("; ")).ok()
}

/// Takes out what was about the connection, also what it names itself.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .into_iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
}

fn wants_upgrade(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::CONNECTION).into_iter();
    let mut words =
        lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',').map(str::trim));
    headers.contains_key(header::UPGRADE) && words.any(|word| word.eq_ignore_ascii_case("upgrade"))
}

/// Both sides speak another protocol now.
async fn join(visitor: OnUpgrade, inside: OnUpgrade) {
    if let (Ok(visitor), Ok(inside)) = tokio::join!(visitor, inside) {
        let (mut visitor, mut inside) = (TokioIo::new(visitor), TokioIo::new(inside));
        let _ = tokio::io::copy_bidirectional(&mut visitor, &mut inside).await;
    }
}

fn broken(error: &hyper::Error) -> Problem {
    Problem::new(Code::PortUnreachable, "what listens there does not answer in HTTP")
        .caused_by(error)
        .with_remedy("join the port as a stream with `belljar forward`")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::time::Duration;

    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    fn request(uri: &str, headers: &[(&str, &str)]) -> Request<Body> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).unwrap()
    }

    const BY_NAME: Form = Form::Name { identified: false };

    #[test]
    fn keys_and_tokens_stay_outside() {
        let sent = [
            ("host", "1-a.test"),
            ("authorization", "Bearer ours"),
            ("x-api-key", "ours"),
            ("x-belljar-token", "ours"),
            ("cookie", "belljar_preview=ours; mine=1"),
            ("connection", "x-secret, close"),
            ("x-secret", "ours"),
        ];
        let uri = "/v1/x/ports/1/a//b?q=1&belljar_token=ours";
        let form = Form::Path { prefix: "/v1/x/ports/1".to_owned() };
        let got = inward(request(uri, &sent), &form, false).unwrap();
        assert_eq!(got.uri(), "/a//b?q=1");
        assert!(!format!("{:?}", got.headers()).contains("ours"));
        // The twin: what is the sandbox's own business goes in.
        let got = inward(request("/a?b", &sent), &BY_NAME, false).unwrap();
        assert_eq!(got.headers()["cookie"], "mine=1");
        assert_eq!(got.headers()["authorization"], "Bearer ours");
        assert_eq!(got.uri(), "/a?b");
        // Nobody's business but ours, also where the port is public.
        for (name, value) in [("authorization", "Bearer bj_abc_def"), ("x-api-key", "bj_abc_def")] {
            let got = inward(request("/", &[(name, value)]), &BY_NAME, false).unwrap();
            assert!(!got.headers().contains_key(name), "{name}");
        }
    }

    #[test]
    fn an_answer_by_path_has_no_origin() {
        let answer = || {
            let mut headers = HeaderMap::new();
            headers.insert("set-cookie", "a=1; Domain=test; Path=/".parse().unwrap());
            headers.insert("service-worker-allowed", "/".parse().unwrap());
            headers
        };
        let mut by_path = answer();
        outward(&mut by_path, &Form::Path { prefix: String::new() }, false);
        assert!(by_path["content-security-policy"].to_str().unwrap().starts_with("sandbox"));
        assert!(!by_path.contains_key("set-cookie"));
        assert!(!by_path.contains_key("service-worker-allowed"));
        let mut by_name = answer();
        outward(&mut by_name, &BY_NAME, false);
        assert_eq!(by_name["set-cookie"], "a=1; Path=/");
        assert!(!by_name.contains_key("content-security-policy"));
    }

    /// Serves one connection whose far end is given.
    fn served<S, F>(service: S) -> tokio::io::DuplexStream
    where
        S: Fn(Request<Incoming>) -> F + Send + 'static,
        F: Future<Output = Response> + Send + 'static,
    {
        let (near, far) = tokio::io::duplex(1024);
        let service = service_fn(move |request| {
            let answer = service(request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(far), service)
            .with_upgrades();
        tokio::spawn(connection);
        near
    }

    const TO_ECHO: [(&str, &str); 2] = [("connection", "upgrade"), ("upgrade", "echo")];

    /// What listens inside: it changes the protocol and echoes.
    async fn echo(mut request: Request<Incoming>) -> Response {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let (mut from, mut to) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
            tokio::io::copy(&mut from, &mut to).await.unwrap();
            to.shutdown().await.unwrap();
        });
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        for (name, value) in TO_ECHO {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    #[tokio::test]
    async fn a_visitor_that_goes_on_in_another_protocol_is_one_until_it_ends() {
        let (held, mut let_go) = oneshot::channel::<()>();
        let held = Mutex::new(Some(held));
        let door = served(move |request| {
            let held = held.lock().unwrap().take();
            let request = request.map(Body::new);
            async move { forward(served(echo), request, &BY_NAME, held).await.unwrap() }
        });
        let (mut sender, connection) = http1::handshake(TokioIo::new(door)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let answer = sender.send_request(request("/", &TO_ECHO)).await.unwrap();
        assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
        let mut visitor = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
        let mut heard = [0; 5];
        visitor.write_all(b"hello").await.unwrap();
        visitor.read_exact(&mut heard).await.unwrap();
        assert_eq!((&heard, let_go.try_recv()), (b"hello", Err(TryRecvError::Empty)));
        drop(visitor);
        let ended = tokio::time::timeout(Duration::from_secs(30), let_go).await;
        ended.expect("it is let go of").unwrap_err();
    }

    #[test]
    fn upgrades_are_asked_for_and_nothing_else() {
        let socket = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        assert!(wants_upgrade(request("/", &socket).headers()));
        assert!(!wants_upgrade(request("/", &socket[1..]).headers()));
        let got = inward(request("/", &socket), &BY_NAME, true).unwrap();
        assert_eq!(got.headers()["upgrade"], "websocket");
        let got = inward(request("/", &socket), &BY_NAME, false).unwrap();
        assert!(!got.headers().contains_key("upgrade"));
    }
}
