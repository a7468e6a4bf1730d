//! An image that is fetched before a sandbox starts from it, shown to whoever sits at a terminal.
//!
//! Only shown: whoever creates the sandbox has the image fetched anyway, and tells what is wrong with it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, IsTerminal};

use belljar_api::v1;
use belljar_client::Client;
use belljar_policy::TemplateSpec;
use belljar_policy::limits::format_bytes;

use crate::output::say;

/// Goes to the beginning of the line and empties it.
const ANEW: &str = "\r\x1b[K";

/// Has the template fetched if it is an image, and shows how far that is, where somebody can see it.
pub(crate) async fn watch(client: &Client, create: &v1::CreateSandboxRequest, quiet: bool) {
    let Some(template) = create.template.as_deref().filter(|word| is_image(word)) else { return };
    if quiet || !io::stderr().is_terminal() {
        return;
    }
    let request =
        v1::FetchTemplateRequest { template: template.to_owned(), backend: create.backend.clone() };
    let Ok(answer) = client.templates.clone().fetch_template(request).await else { return };
    let mut steps = answer.into_inner();
    let mut progress = Progress::default();
    while let Ok(Some(step)) = steps.message().await {
        progress.take(&step);
        say(&format!("{ANEW}fetching `{}`: {progress}", template.escape_debug()));
    }
    if !progress.parts.is_empty() {
        say("\n");
    }
}

fn is_image(word: &str) -> bool {
    matches!(TemplateSpec::parse(OsStr::new(word)), Ok(TemplateSpec::Image(_)))
}

/// How far each part is.
#[derive(Debug, Default)]
struct Progress {
    parts: BTreeMap<String, Part>,
}

#[derive(Debug, Default)]
struct Part {
    bytes: u64,
    of: u64,
    is_done: bool,
}

impl Progress {
    fn take(&mut self, step: &v1::FetchStep) {
        let part = self.parts.entry(step.part.clone()).or_default();
        part.bytes = step.bytes.unwrap_or(part.of.max(part.bytes));
        part.of = step.of.unwrap_or(part.of).max(part.bytes);
        part.is_done = step.state == v1::FetchState::Done as i32;
    }
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let done = self.parts.values().filter(|part| part.is_done).count();
        write!(f, "{done} of {} parts", self.parts.len())?;
        let bytes: u64 = self.parts.values().map(|part| part.bytes).sum();
        let of: u64 = self.parts.values().map(|part| part.of).sum();
        if of > 0 {
            write!(f, ", {} of {}", format_bytes(bytes), format_bytes(of))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_and_bytes_added() {
        let mut progress = Progress::default();
        let mut take = |part: &str, state: v1::FetchState, bytes, of| {
            let step = v1::FetchStep { part: part.to_owned(), state: state.into(), bytes, of };
            progress.take(&step);
            progress.to_string()
        };
        assert_eq!(take("a", v1::FetchState::Waiting, None, None), "0 of 1 parts");
        take("b", v1::FetchState::Coming, Some(1 << 20), Some(4 << 20));
        let shown = take("a", v1::FetchState::Coming, Some(1 << 20), Some(2 << 20));
        assert_eq!(shown, "0 of 2 parts, 2 MiB of 6 MiB");
        let shown = take("b", v1::FetchState::Done, None, None);
        assert_eq!(shown, "1 of 2 parts, 5 MiB of 6 MiB");
    }

    #[test]
    fn only_images_are_fetched() {
        for (word, expected) in
            [("image:busybox", true), ("debian:12", true), ("host", false), ("rootfs:/x", false)]
        {
            assert_eq!(is_image(word), expected, "{word}");
        }
    }
}
