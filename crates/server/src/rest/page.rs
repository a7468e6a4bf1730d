//! The OpenAPI document as a page for people: one file, without scripts, readable offline.

use std::fmt::Write;

use serde_json::Value;

const STYLE: &str = include_str!("page.css");

pub(super) fn render(document: &Value) -> String {
    let info = &document["info"];
    let title = format!("{} API {}", text(&info["title"]), text(&info["version"]));
    let mut body = format!("<h1>{title}</h1><p>{}</p>", prose(&info["description"]));
    body +=
        "<p>The same as a document for programs: <a href=\"/openapi.json\">/openapi.json</a>.</p>";
    let tags = document["tags"].as_array().into_iter().flatten();
    let tags: Vec<&str> = tags.filter_map(|tag| tag["name"].as_str()).collect();
    body += "<nav>";
    for tag in tags.iter().copied().chain(["shapes"]) {
        let _ = write!(body, "<a href=\"#{tag}\">{tag}</a>");
    }
    body += "</nav>";
    for tag in tags {
        let _ = write!(body, "<h2 id=\"{tag}\">{tag}</h2>");
        for (path, method, operation) in operations(document) {
            if operation["tags"][0] == tag {
                body += &operation_of(path, method, operation);
            }
        }
    }
    body += "<h2 id=\"shapes\">shapes</h2>";
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        body += &shape(name, schema);
    }
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style><body>{body}</body></html>\n"
    )
}

fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    let paths = document["paths"].as_object().into_iter().flatten();
    paths.flat_map(|(path, item)| {
        let operations = item.as_object().into_iter().flatten();
        operations.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
    })
}

fn operation_of(path: &str, method: &str, operation: &Value) -> String {
    let mut out = format!(
        "<details id=\"{}\"><summary><b>{}</b><code>{}</code><span>{}</span></summary>",
        text(&operation["operationId"]),
        method.to_uppercase(),
        escape(path),
        prose(&operation["summary"]),
    );
    if operation["description"].is_string() {
        let _ = write!(out, "<p>{}</p>", prose(&operation["description"]));
    }
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let rows = parameters.map(|parameter| {
        let required = if parameter["required"] == true { ", required" } else { "" };
        let kind =
            format!("{} in {}{required}", kind(&parameter["schema"]), text(&parameter["in"]));
        row(&text(&parameter["name"]), &kind, &prose(&parameter["description"]))
    });
    out += &table("Parameters", rows);
    out += &table("Body", contents(&operation["requestBody"]["content"], "", ""));
    let responses = operation["responses"].as_object().into_iter().flatten();
    let (good, bad): (Vec<_>, Vec<_>) =
        responses.partition(|(status, _)| status.starts_with(['1', '2']));
    let answers = good.iter().flat_map(|(status, response)| {
        let description = prose(&response["description"]);
        if response["content"].is_object() {
            contents(&response["content"], status, &description)
        } else {
            vec![row(status, "", &description)]
        }
    });
    out += &table("Answers", answers);
    let failures =
        bad.iter().map(|(status, response)| row(status, "", &prose(&response["description"])));
    out += &table("Failures", failures);
    out + "</details>"
}

/// A row for each kind of content.
fn contents(content: &Value, status: &str, description: &str) -> Vec<String> {
    let kinds = content.as_object().into_iter().flatten();
    kinds
        .map(|(media, content)| {
            let name = if status.is_empty() {
                escape(media)
            } else {
                format!("{status} {}", escape(media))
            };
            row(&name, &kind(&content["schema"]), description)
        })
        .collect()
}

fn shape(name: &str, schema: &Value) -> String {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let rows = properties
        .map(|(name, schema)| row(&escape(name), &kind(schema), &prose(&schema["description"])));
    format!(
        "<details id=\"{name}\"><summary><code>{name}</code><span>{}</span></summary>{}{}</details>",
        prose(&schema["description"]),
        if schema["enum"].is_array() { kind(schema) } else { String::new() },
        table("", rows),
    )
}

/// A type in a few characters, with links to shapes.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|place| place.rsplit('/').next()) {
        return format!("<a href=\"#{name}\">{name}</a>");
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<_> =
            words.iter().map(|word| format!("<code>{}</code>", text(word))).collect();
        return words.join(" ");
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let choices = choices.iter().filter(|choice| choice["type"] != "null").map(kind);
        return choices.collect::<Vec<_>>().join(" or ");
    }
    let name = match &schema["type"] {
        Value::Array(names) => {
            names.iter().find(|name| *name != "null").map(text).unwrap_or_default()
        }
        name => text(name),
    };
    match name.as_str() {
        "array" => format!("list of {}", kind(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map of {}", kind(&schema["additionalProperties"]))
        }
        _ => name,
    }
}

fn table(title: &str, rows: impl IntoIterator<Item = String>) -> String {
    let rows: String = rows.into_iter().collect();
    match (rows.is_empty(), title) {
        (true, _) => String::new(),
        (false, "") => format!("<table>{rows}</table>"),
        (false, title) => format!("<h4>{title}</h4><table>{rows}</table>"),
    }
}

fn row(name: &str, kind: &str, description: &str) -> String {
    format!("<tr><td><code>{name}</code><td>{kind}<td>{description}")
}

/// Text with what is between backticks set as code.
fn prose(value: &Value) -> String {
    let text = text(value);
    let parts = text.split('`').enumerate().map(|(number, part)| match number % 2 {
        0 => part.to_owned(),
        _ => format!("<code>{part}</code>"),
    });
    parts.collect()
}

fn text(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(prose(&json!("a <b> `c&d`")), "a &lt;b&gt; <code>c&amp;d</code>");
    }

    #[test]
    fn types_are_short() {
        let check = |schema: Value, expected: &str| assert_eq!(kind(&schema), expected, "{schema}");
        check(json!({"type": ["string", "null"]}), "string");
        check(json!({"type": "array", "items": {"type": "integer"}}), "list of integer");
        check(json!({"$ref": "#/components/schemas/A"}), "<a href=\"#A\">A</a>");
        check(json!({"oneOf": [{"type": "null"}, {"type": "string"}]}), "string");
    }
}
