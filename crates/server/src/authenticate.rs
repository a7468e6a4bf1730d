//! Finds out who asks, before anything else happens to a request.
//!
//! In this order: a key or token that was sent must be right, wherever it comes from; without one, the kernel's word
//! about the connection decides. Anything else is refused.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use belljar_codes::Code;
use belljar_engine::{AuditEntry, Engine, KeyInfo, Scope};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Uri, header};
use tracing::Instrument;

use crate::api::Api;
use crate::body::Guarded;
use crate::call::Call;
use crate::caller::{Caller, Proof};
use crate::limit::{Admitted, Limits};
use crate::own_keys::OwnKeys;
use crate::patience::Patience;
use crate::peer::Peer;
use crate::preview::{self, Admission, Form, Target};
use crate::problem::{Problem, Result};
use crate::respond;
use crate::token::{self, Tokens};

/// Routes that anybody may ask for: whether the server lives, and what its API is.
const OPEN: [&str; 3] = ["/healthz", "/openapi.json", "/docs"];

/// What identities are checked against.
#[derive(Clone)]
pub(crate) struct Gate {
    api: Api,
    engine: Engine,
    tokens: Arc<Tokens>,
    limits: Limits,
    own_keys: Arc<OwnKeys>,
    patience: Patience,
}

/// What lets a visitor of a port in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Everybody may see it.
    Public,
    /// A token for this port.
    Token,
    /// What lets into the API, too.
    Key,
}

pub(crate) async fn authenticate(
    State(gate): State<Gate>,
    mut request: Request,
    next: Next,
) -> Response {
    let request_id = respond::request_id(request.headers());
    if let Some(target) = preview::target(&request, &gate.api.status().domain) {
        let response = gate.show(target, request, &request_id).await;
        return respond::finish(response, &request_id, false);
    }
    let open = OPEN.contains(&request.uri().path());
    let peer = request.extensions().get::<Peer>().cloned();
    let caller = if open {
        Ok(None)
    } else {
        gate.enter(peer.as_ref(), request.uri(), request.headers()).await.map(Some)
    };
    let grpc = respond::is_grpc(request.headers());
    let response = match caller {
        Ok(None) => next.run(request).await,
        Ok(Some((caller, admitted))) => {
            // At the level of warnings, so that these say which request they belong to.
            let span = tracing::warn_span!(
                "request",
                id = request_id,
                actor = caller.actor,
                action = tracing::field::Empty,
                outcome = tracing::field::Empty,
            );
            request.extensions_mut().insert(Call::new(caller, request_id.clone()));
            let admitted = admitted.map(Arc::new);
            if let Some(admitted) = &admitted {
                // For who goes on after the answer, in another protocol.
                request.extensions_mut().insert(Arc::clone(admitted));
            }
            let response = next.run(request).instrument(span).await;
            // Under way until the last byte of the answer has gone.
            match admitted {
                Some(admitted) => response.map(|body| Body::new(Guarded::new(body, admitted))),
                None => response,
            }
        }
        Err(problem) => problem.into_response(),
    };
    respond::finish(response, &request_id, grpc)
}

impl Gate {
    pub(crate) fn new(api: &Api, own_keys: OwnKeys, patience: Patience) -> Self {
        let engine = api.unscoped().clone();
        Self {
            limits: api.limits().clone(),
            tokens: Arc::clone(api.tokens()),
            own_keys: Arc::new(own_keys),
            api: api.clone(),
            patience,
            engine,
        }
    }

    /// Shows a port by its own name: to everybody where it is public, else to who has a token for it or a key.
    async fn show(&self, target: Target, request: Request, request_id: &str) -> Response {
        let tls = self.api.status().tls;
        let (mut parts, body) = request.into_parts();
        let admission = Admission::of(&parts);
        let (caller, way) = match self.visitor(&target, &admission, &parts).await {
            Ok(visitor) => visitor,
            Err(problem) => return problem.into_response(),
        };
        if let Some(welcome) = admission.welcome(&parts, tls) {
            return welcome;
        }
        let visit = match self.limits.visit(&caller, way == Way::Public) {
            Ok(visit) => visit.map(Arc::new),
            Err(problem) => return problem.into_response(),
        };
        if way != Way::Key {
            self.take_out_keys(&mut parts.headers).await;
        }
        let call = Call::new(caller, request_id.to_owned());
        let request = self.patience.bound_body(Request::from_parts(parts, body));
        let shown = async {
            let id = target.id.as_str();
            let tunnel = self.api.visit_port(&call, id, target.port.into()).await?;
            let form = Form::Name { identified: way == Way::Key };
            preview::forward(tunnel, request, &form, visit.clone()).await
        };
        let response = shown.await.unwrap_or_else(IntoResponse::into_response);
        response.map(|body| Body::new(Guarded::new(body, visit)))
    }

    /// Who visits a port, and what lets them in.
    async fn visitor(
        &self,
        target: &Target,
        admission: &Admission,
        request: &Parts,
    ) -> Result<(Caller, Way)> {
        let peer = request.extensions.get::<Peer>();
        let shown = self.engine.exposed_port(&target.id, target.port).await?;
        if let Some((_, tenant)) = shown.iter().find(|(shown, _)| shown.public) {
            return Ok((Caller::visitor(tenant, &target.id, "anybody"), Way::Public));
        }
        match admission {
            Admission::Other => {
                let (caller, _) = self.enter(peer, &request.uri, &request.headers).await?;
                Ok((caller, Way::Key))
            }
            Admission::Token(..) => {
                let checked = match (admission.check(&self.tokens, target, request), &shown) {
                    (Ok(key), Some((_, tenant))) => {
                        let caller = Caller { key, ..Caller::visitor(tenant, &target.id, "token") };
                        self.still_stands(&caller).await.map(|()| caller)
                    }
                    (Ok(_), None) => {
                        Err(Problem::new(Code::TokenInvalid, "this port is not shown")
                            .with_remedy("`belljar expose` shows it"))
                    }
                    (Err(problem), _) => Err(problem),
                };
                if let (Err(_), Some(address)) = (&checked, peer.and_then(Peer::address)) {
                    self.limits.failed(address)?;
                }
                checked.map(|caller| (caller, Way::Token))
            }
        }
    }

    /// A client that sends what lets it into the API everywhere sends it to a port of a sandbox, too. It is nobody's business
    /// there, whatever let the visitor in. Anybody may visit, and looking takes time: a header that comes more than once, as
    /// neither of these ever should, is taken out unseen. So is one where looking fails: of that a visitor learns nothing.
    async fn take_out_keys(&self, headers: &mut HeaderMap) {
        for name in preview::KEY_HEADERS {
            let mut values = headers.get_all(&name).iter();
            let ours = match (values.next(), values.next()) {
                (None, _) => false,
                (Some(value), None) => {
                    self.is_ours(preview::secret_in(value)).await.unwrap_or(true)
                }
                (Some(_), Some(_)) => true,
            };
            if ours {
                headers.remove(&name);
            }
        }
    }

    async fn is_ours(&self, secret: &str) -> Result<bool> {
        if secret.is_empty() {
            return Ok(false);
        }
        let own = self.own_keys.caller(secret).is_some();
        Ok(own || self.tokens.is_ours(secret)? || self.engine.keys().knows(secret).await?)
    }

    /// Finds out who asks, and whether they may ask now.
    async fn enter(
        &self,
        peer: Option<&Peer>,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(Caller, Option<Admitted>)> {
        let caller = match self.identify(peer, uri, headers).await {
            Ok(caller) => caller,
            Err(problem) => {
                self.refused(&problem, peer.and_then(Peer::address), headers)?;
                return Err(problem);
            }
        };
        let admitted = match caller.is_admin() {
            true => None,
            false => Some(self.limits.admit(&caller.tenant()).await?),
        };
        Ok((caller, admitted))
    }

    /// Wrong keys and tokens count against their address and are on record; those beyond its limit are not.
    fn refused(
        &self,
        problem: &Problem,
        address: Option<IpAddr>,
        headers: &HeaderMap,
    ) -> Result<()> {
        let wrong = matches!(problem.code, Code::Unauthenticated | Code::TokenInvalid);
        let (true, Some(address), Ok(Some(_))) = (wrong, address, secret(headers)) else {
            return Ok(());
        };
        self.limits.failed(address)?;
        self.engine.audit().record(AuditEntry {
            actor: format!("address:{address}"),
            action: "identify".to_owned(),
            outcome: problem.code.as_str().to_owned(),
            ..AuditEntry::default()
        });
        Ok(())
    }

    async fn identify(
        &self,
        peer: Option<&Peer>,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Caller> {
        if let Some(secret) = secret(headers)? {
            return self.by_secret(secret).await;
        }
        match peer {
            Some(Peer::Embedded) => Ok(Caller::operator("embedded", Proof::Embedded)),
            Some(Peer::Socket { uid }) if is_operator(*uid) => {
                Ok(Caller::operator(format!("uid:{uid}"), Proof::Socket))
            }
            Some(Peer::Tcp(peer)) => {
                self.refuse_with_keys().await?;
                refuse_foreign(uri, headers)?;
                match peer.owner().await.filter(|uid| is_operator(*uid)) {
                    Some(uid) => Ok(Caller::operator(format!("uid:{uid}"), Proof::Loopback)),
                    None => Err(unknown("the request carries no API key")),
                }
            }
            _ => Err(unknown("the request carries no API key")),
        }
    }

    async fn by_secret(&self, secret: &str) -> Result<Caller> {
        if let Some(caller) = self.own_keys.caller(secret) {
            return Ok(caller);
        }
        if token::is_one(secret) {
            let caller = self.tokens.caller(secret)?;
            self.still_stands(&caller).await?;
            return Ok(caller);
        }
        match self.engine.keys().verify(secret).await? {
            Some(key) => Ok(of_key(key)),
            None => Err(unknown("the API key is not known, has expired or was revoked")),
        }
    }

    /// A token is nothing once its sandbox has ended, or the key that made it opens nothing any more.
    async fn still_stands(&self, caller: &Caller) -> Result<()> {
        let made = match &caller.key {
            Some(key) if token::is_own(key) => {
                self.tokens.is_made_with(key, self.own_keys.fingerprints())?
            }
            Some(key) => self.engine.keys().opens(key).await?,
            None => true,
        };
        let lives = match &caller.scope {
            Scope::Sandbox { id, .. } => self.engine.lives(id).await?,
            Scope::All | Scope::Tenant(_) => true,
        };
        if made && lives { Ok(()) } else { Err(token::invalid()) }
    }

    /// Where keys exist, something may stand between the caller and this server; then only a key tells who asks. Keys that
    /// have ended count too: revoking the last one must not open a door.
    async fn refuse_with_keys(&self) -> Result<()> {
        let keys = self.engine.keys();
        if !self.own_keys.is_empty() || keys.any().await? {
            return Err(unknown("this server has API keys, and the request carries none"));
        }
        if keys.ever().await? {
            return Err(unknown("every API key of this server has expired or was revoked")
                .with_remedy(
                    "use the Unix socket, or make a key there with `belljar keys create`",
                ));
        }
        Ok(())
    }
}

fn of_key(key: KeyInfo) -> Caller {
    Caller {
        scope: key.scope(),
        actor: format!("key:{}", key.id),
        permissions: key.scopes.iter().map(|scope| scope.as_str().to_owned()).collect(),
        key: Some(key.id),
        own_key: None,
        expires_at: key.expires_at,
        proof: Proof::Key,
    }
}

/// The server's own user, or root, who could be the server's user at will.
fn is_operator(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

fn secret(headers: &HeaderMap) -> Result<Option<&str>> {
    let unreadable = |_| unknown("the API key is not text");
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let value = value.to_str().map_err(unreadable)?;
        let bearer = value.split_once(' ').filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
        return match bearer {
            Some((_, secret)) => Ok(Some(secret.trim())),
            None => Err(unknown("the header `authorization` has no bearer key")),
        };
    }
    headers.get("x-api-key").map(|value| value.to_str().map_err(unreadable)).transpose()
}

/// A page in a browser can reach loopback too, and so can a name that somebody else points there. HTTP/2 has the name in the
/// address instead of a header; who gives none has passed somebody who took it out.
fn refuse_foreign(uri: &Uri, headers: &HeaderMap) -> Result<()> {
    let local = |value: &str| {
        let host = value.rsplit_once("://").map_or(value, |(_, rest)| rest);
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        // Before an `@` there could be anything.
        !value.contains('@')
            && (host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()))
    };
    let hosts = headers.get_all(header::HOST).iter().map(HeaderValue::to_str);
    let named: Vec<_> =
        uri.authority().map(|name| Ok(name.as_str())).into_iter().chain(hosts).collect();
    let origins = headers.get_all(header::ORIGIN).iter().map(HeaderValue::to_str);
    let foreign =
        named.is_empty() || named.into_iter().chain(origins).any(|name| !name.is_ok_and(local));
    if foreign || headers.contains_key("x-forwarded-for") || headers.contains_key(header::FORWARDED)
    {
        return Err(unknown("without a key, requests come from this machine by its own name"));
    }
    Ok(())
}

fn unknown(message: &str) -> Problem {
    Problem::new(Code::Unauthenticated, message.to_owned())
        .with_remedy("send `authorization: Bearer KEY`; `belljar keys create` makes a key")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belljar_engine::{EngineOptions, NewKey, Role, SandboxId, Secret, TenantId};

    use super::*;
    use crate::status::Status;

    fn headers(entries: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in entries {
            headers.insert(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn keys_are_found() {
        let check = |entries: &[(&'static str, &str)], expected: Option<&str>| {
            assert_eq!(secret(&headers(entries)).unwrap(), expected, "{entries:?}");
        };
        check(&[], None);
        check(&[("authorization", "Bearer abc")], Some("abc"));
        check(&[("authorization", "bearer abc")], Some("abc"));
        check(&[("x-api-key", "abc")], Some("abc"));
        assert!(secret(&headers(&[("authorization", "Basic abc")])).is_err());
    }

    #[tokio::test]
    async fn what_lets_into_the_api_does_not_go_into_a_sandbox() {
        const OWN: &str = "0123456789abcdef";
        const CHOSEN: &str = "chosen-by-a-tenant";
        let directory = tempfile::tempdir().unwrap();
        let engine = Engine::open(EngineOptions::new(directory.path(), Vec::new())).await.unwrap();
        let api = Api::new(engine.clone(), Arc::new(Status::new(Vec::new(), false, false)));
        let mut own_keys = OwnKeys::default();
        own_keys.add(OWN, "the test").unwrap();
        let gate = Gate::new(&api, own_keys, Patience::default());
        let tenant = TenantId::default();
        let new = NewKey {
            name: "test".to_owned(),
            tenant: tenant.clone(),
            role: Role::Tenant,
            scopes: Vec::new(),
            expires_at: None,
        };
        let made = engine.keys().create(new.clone()).await.unwrap().1;
        engine.keys().add(&Secret::new(CHOSEN.to_owned()), new).await.unwrap();
        let (id, hour) = (SandboxId::parse("n001abcdefgh").unwrap(), Duration::from_secs(3600));
        let issued =
            api.tokens().issue(&tenant, &id, token::Audience::Api, hour, &[], None).unwrap();
        let stays = async |name: &'static str, value: &str| {
            let mut sent = headers(&[(name, value), ("host", "1-a.test")]);
            gate.take_out_keys(&mut sent).await;
            assert!(sent.contains_key("host"));
            sent.contains_key(name)
        };
        for secret in [OWN, CHOSEN, made.expose(), &issued.0] {
            for around in ["Bearer {}", "bearer  {}", "Bearer {} ", "Bearer {}\t", "Bearer \t{}"] {
                let value = around.replace("{}", secret);
                assert!(!stays("authorization", &value).await, "{value:?}");
            }
            assert!(!stays("x-api-key", secret).await, "{secret}");
        }
        // One that comes several times is not looked at.
        let mut several = HeaderMap::new();
        several.append("x-api-key", HeaderValue::from_static("of-the-sandbox-itself"));
        several.append("x-api-key", HeaderValue::from_static("and-another"));
        gate.take_out_keys(&mut several).await;
        assert!(several.is_empty());
        // The twin: what is the sandbox's own business goes in.
        for value in ["Bearer of-the-sandbox-itself", "Bearer a.b.c", "Basic YTpi", ""] {
            assert!(stays("authorization", value).await, "{value}");
        }
        assert!(stays("x-api-key", "of-the-sandbox-itself").await);
    }

    #[test]
    fn only_this_machine_by_its_own_name() {
        let check = |entries: &[(&'static str, &str)], fine: bool| {
            let refused = refuse_foreign(&Uri::from_static("/v1/run"), &headers(entries));
            assert_eq!(refused.is_ok(), fine, "{entries:?}");
        };
        check(&[], false);
        check(&[("host", "127.0.0.1:8080")], true);
        check(&[("host", "localhost")], true);
        check(&[("host", "[::1]:8080")], true);
        check(&[("host", "evil.example")], false);
        check(&[("host", "localhost.evil.example:80")], false);
        check(&[("host", "localhost:x@evil.example")], false);
        check(&[("host", "localhost"), ("origin", "http://evil.example")], false);
        check(&[("host", "localhost"), ("origin", "http://localhost:3000")], true);
        check(&[("host", "localhost"), ("x-forwarded-for", "10.0.0.1")], false);
        let check = |uri: &'static str, fine: bool| {
            assert_eq!(
                refuse_foreign(&Uri::from_static(uri), &headers(&[])).is_ok(),
                fine,
                "{uri}"
            );
        };
        check("http://127.0.0.1:8080/", true);
        check("http://evil.example/", false);
        check("http://localhost@evil.example/", false);
        check("http://localhost:x@evil.example/", false);
    }
}
