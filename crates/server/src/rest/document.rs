//! What the OpenAPI document says about every operation alike.
//!
//! Routes say what they take and what they answer with. Here they get what follows from their path, who may ask, and
//! the ways in which they fail.

use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;

/// The document with everything that routes need not repeat.
pub(super) fn finish(document: &OpenApi) -> Value {
    let mut document = serde_json::to_value(document).expect("an OpenAPI document has a JSON form");
    document["info"] = json!({
        "title": "Belljar",
        "version": env!("CARGO_PKG_VERSION"),
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        "description": DESCRIPTION,
    });
    document["security"] = json!([{"bearer": []}, {"key": []}, {}]);
    document["components"]["securitySchemes"] = json!({
        "bearer": {"type": "http", "scheme": "bearer", "description": "An API key or a token"},
        "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    });
    let mut tags = Vec::new();
    if let Some(paths) = document["paths"].as_object_mut() {
        for (path, item) in paths {
            let operations = item.as_object_mut().into_iter().flatten();
            for (_, operation) in operations.filter(|(name, _)| name.as_str() != "parameters") {
                let tag = tag_of(path);
                if !tags.contains(&tag) {
                    tags.push(tag);
                }
                operation["tags"] = json!([tag]);
                add_parameters(operation, path);
                add_failures(operation, path);
            }
        }
    }
    document["tags"] = tags.into_iter().map(|name| json!({"name": name})).collect();
    document
}

const DESCRIPTION: &str = "Sandboxes for untrusted code: create them, run commands in them, move files in and out. \
    Every failure has the same shape, with a stable `code`, and `x-request-id` names the request in the server's log. \
    Streams are server-sent events where the caller accepts `text/event-stream`; terminals are WebSockets.";

/// What a path is about: the last of its fixed words that is a thing.
fn tag_of(path: &str) -> &'static str {
    let things = [
        "files",
        "layer",
        "processes",
        "snapshots",
        "policies",
        "sandboxes",
        "events",
        "tenants",
        "keys",
        "webhooks",
        "callbacks",
        "secrets",
    ];
    let mut words = path.split('/').rev();
    if path.ends_with("/exec") || path.ends_with("/run") || path.ends_with("/shell") {
        return "processes";
    }
    if path.ends_with("/tokens") || path.ends_with("/audit") {
        return "keys";
    }
    if path.ends_with("/explain") {
        return "sandboxes";
    }
    words.find_map(|word| things.into_iter().find(|thing| *thing == word)).unwrap_or("server")
}

/// The names in braces.
fn add_parameters(operation: &mut Value, path: &str) {
    let names = path.split('/').filter_map(|word| word.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = names
        .map(|name| {
            let description = match name {
                "sandbox" => "Name or id of a sandbox",
                "process" => "Id of a process",
                "snapshot" => "Name or id of a snapshot",
                "tenant" => "Name of a tenant",
                "key" => "Id of an API key",
                "webhook" => "Id of a webhook",
                "secret" => "Name of a secret",
                _ => "Id",
            };
            let schema = json!({"type": "string", "minLength": 1});
            json!({
                "name": name, "in": "path", "required": true, "description": description,
                "schema": schema,
            })
        })
        .collect();
    parameters.extend(operation["parameters"].as_array().cloned().unwrap_or_default());
    operation["parameters"] = parameters.into();
}

/// Every failure is a problem; which kinds are possible follows from what the operation takes.
fn add_failures(operation: &mut Value, path: &str) {
    let takes_body = operation.get("requestBody").is_some();
    let names_something = path.contains('{') || takes_body || path.contains("/events");
    // They take a sandbox as a parameter.
    let by_parameter = ["/v1/processes", "/v1/approvals"].contains(&path);
    let failures = [
        ("400", "The request is wrong, or cannot be had on this host", true),
        ("401", "The caller is not known", true),
        ("403", "The caller may not do this", true),
        ("404", "What is named does not exist", names_something || by_parameter),
        ("408", "The body stalled", takes_body),
        ("409", "Not in this state, or it exists already", names_something),
        ("413", "The body is too large", takes_body),
        ("415", "The body is of a kind that is not taken", takes_body),
        ("429", "A quota or rate is used up", true),
        ("500", "The server failed", true),
        ("503", "The server is about to end", true),
        ("507", "The host or the sandbox has run out of something", true),
    ];
    let problem = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}});
    let responses = operation["responses"].as_object_mut();
    let responses = responses.expect("every operation has answers");
    for (status, description, possible) in failures {
        if possible {
            let failure = json!({"description": description, "content": problem});
            responses.entry(status).or_insert(failure);
        }
    }
    // A request number is on everything that is answered.
    let header = json!({"description": "Names this request", "schema": {"type": "string"}});
    for response in responses.values_mut() {
        let headers = response.as_object_mut().map(|response| response.entry("headers"));
        if let Some(headers) = headers.map(|entry| entry.or_insert_with(|| Map::new().into())) {
            headers["x-request-id"] = header.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_their_things() {
        let check = |path: &str, tag: &str| assert_eq!(tag_of(path), tag, "{path}");
        check("/v1/sandboxes/{sandbox}", "sandboxes");
        check("/v1/sandboxes/{sandbox}/files/stat", "files");
        check("/v1/sandboxes/{sandbox}/exec", "processes");
        check("/v1/processes/{process}/log", "processes");
        check("/v1/sandboxes/{sandbox}/snapshots", "snapshots");
        check("/v1/server/stop", "server");
    }
}
