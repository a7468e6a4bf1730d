//! One life over every transport of the server: a command runs and its output comes back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use belljar_api::v1;
use belljar_client::Client;
use belljar_server_tests::{Host, create, destroy, exec};
use prost::Message;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

async fn live(client: &Client) {
    let sandbox = create(client).await;
    let result = exec(client, &sandbox, "echo here; echo there >&2; exit 3").await;
    assert_eq!((&result.stdout[..], &result.stderr[..]), (&b"here\n"[..], &b"there\n"[..]));
    assert_eq!(result.exit_code, 3);
    destroy(client, &sandbox).await;
    let request = v1::GetSandboxRequest { sandbox };
    let after = client.sandboxes.clone().get_sandbox(request).await.unwrap().into_inner();
    assert_eq!(after.state(), v1::SandboxState::Destroyed);
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_over_the_socket_and_over_tcp() {
    let Some(host) = Host::serving("grpc") else { return };
    live(&host.client().await).await;
    live(&host.client_with(None).await).await;
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_over_tls() {
    let Some(host) = Host::empty("grpc_over_tls") else { return };
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) =
        (host.installation.work().join("cert.pem"), host.installation.work().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let paths = [certificate.to_str().unwrap(), key.to_str().unwrap()];
    host.serve(&["--tls-cert", paths[0], "--tls-key", paths[1]], &[]);
    assert!(host.url().starts_with("https://"), "{}", host.url());
    let url = host.url().replace("127.0.0.1", "localhost");

    let trusting = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(made.cert.pem()));
    let endpoint = Endpoint::from_shared(url.clone()).unwrap();
    let channel = endpoint.clone().tls_config(trusting).unwrap().connect().await.unwrap();
    live(&Client::new(channel, None).unwrap()).await;

    // Who does not trust the certificate, or speaks without TLS, does not get through.
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(other.cert.pem()));
    assert!(endpoint.tls_config(other).unwrap().connect().await.is_err());
    let plain = host.url().replace("https", "http");
    let mut system = Client::connect(&belljar_client::Address::parse(&plain).unwrap(), None).await;
    if let Ok(client) = &mut system {
        assert!(client.system.get_server(v1::GetServerRequest {}).await.is_err());
    }
    // The command line, where the machine trusts the certificate, and where it does not.
    let refused = host.installation.run(["--server", &url, "list", "--json"]);
    assert_eq!(refused.json()["error"]["code"], "server-unreachable", "{refused}");
    let listed = host
        .installation
        .command(["--server", &url, "list", "--json"])
        .env("SSL_CERT_FILE", &certificate)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout).trim(), "[]", "{listed:?}");
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_web_over_http_1() {
    let Some(host) = Host::serving("grpc_web") else { return };
    let port = host.port();
    let created: v1::Sandbox =
        web(&port, "Sandboxes/CreateSandbox", &v1::CreateSandboxRequest::default()).unwrap();
    let request = v1::ExecRequest {
        sandbox: created.sandbox_id.clone(),
        command: Some(belljar_server_tests::shell("echo web")),
        ..v1::ExecRequest::default()
    };
    let result: v1::ExecResponse = web(&port, "Processes/Exec", &request).unwrap();
    assert_eq!(&result.stdout[..], b"web\n");
    // A refusal arrives in the trailers, with its status.
    let request = v1::GetSandboxRequest { sandbox: "nonesuch".to_owned() };
    let refusal = web::<v1::Sandbox>(&port, "Sandboxes/GetSandbox", &request).unwrap_err();
    assert!(refusal.contains("grpc-status:5"), "{refusal}");
    host.finish().await;
}

/// One gRPC-Web call by hand: the first message, or the trailers where there is none.
fn web<T: Message + Default>(
    port: &str,
    method: &str,
    request: &impl Message,
) -> Result<T, String> {
    let mut stream = TcpStream::connect(port).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let message = request.encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    let head = format!(
        "POST /belljar.v1.{method} HTTP/1.1\r\nhost: {port}\r\ncontent-type: application/grpc-web+proto\r\n\
         x-grpc-web: 1\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let split = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..split]).to_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let mut body = answer[split + 4..].to_vec();
    if head.contains("transfer-encoding: chunked") {
        body = unchunk(&body);
    }
    if body.is_empty() {
        return Err(head.replace(": ", ":"));
    }
    let length = u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
    let frame = &body[5..5 + length];
    // The highest bit marks trailers.
    if body[0] & 0x80 != 0 {
        return Err(String::from_utf8_lossy(frame).replace(": ", ":"));
    }
    Ok(T::decode(frame).unwrap())
}

fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|bytes| bytes == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let start = end + 2;
        body.extend_from_slice(&rest[start..start + size]);
        rest = &rest[(start + size + 2).min(rest.len())..];
        if size == 0 {
            break;
        }
    }
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_tells_that_the_server_lives() {
    let Some(host) = Host::serving("plain_http") else { return };
    let mut stream = TcpStream::connect(host.port()).unwrap();
    let head =
        format!("GET /healthz HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", host.port());
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{answer}");
    host.finish().await;
}
