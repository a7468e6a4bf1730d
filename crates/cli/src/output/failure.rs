//! How a failure reads.

use serde::Serialize;

use super::{print_json, say, strong};
use crate::failure::Failure;

/// Bright red.
const RED: &str = "31";

#[derive(Serialize)]
struct FailureShape<'a> {
    error: ErrorShape<'a>,
}

#[derive(Serialize)]
struct ErrorShape<'a> {
    code: &'static str,
    message: &'a str,
    cause: Option<String>,
    remedy: Option<&'a str>,
}

/// Text on standard error for people, or one JSON object on standard output for programs.
pub(crate) fn print_failure(failure: &Failure, json: bool) {
    if json {
        // Nothing is left to be done where even this cannot be written.
        let _ = print_json(&FailureShape::from(failure));
    } else {
        say(&render(failure, |head| strong(head, RED)));
    }
}

fn render(failure: &Failure, paint: impl Fn(&str) -> String) -> String {
    let head = paint(&format!("error[{}]", failure.code.as_str()));
    let mut text = format!("{head}: {}\n", indent(&failure.message));
    for cause in &failure.causes {
        text.push_str(&format!("  caused by: {}\n", indent(cause)));
    }
    if let Some(remedy) = &failure.remedy {
        text.push_str(&format!("\nhint: {}\n", indent(remedy)));
    }
    text
}

/// Later lines of a message stand below its first.
fn indent(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

impl<'a> From<&'a Failure> for FailureShape<'a> {
    fn from(failure: &'a Failure) -> Self {
        let cause = (!failure.causes.is_empty()).then(|| failure.causes.join(": "));
        Self {
            error: ErrorShape {
                code: failure.code.as_str(),
                message: &failure.message,
                cause,
                remedy: failure.remedy.as_deref(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_codes::Code;

    fn failure() -> Failure {
        let mut failure = Failure::new(Code::MountSourceUnusable, "sandbox `web-1` did not start")
            .with_remedy("choose another `--mount`");
        failure.causes = vec!["mount `/srv/data` at `/data`".into(), "permission denied".into()];
        failure
    }

    #[test]
    fn people_read_cause_by_cause() {
        let expected = "\
error[mount-source-unusable]: sandbox `web-1` did not start
  caused by: mount `/srv/data` at `/data`
  caused by: permission denied

hint: choose another `--mount`
";
        assert_eq!(render(&failure(), str::to_owned), expected);
        let lines = render(&Failure::new(Code::Internal, "a\nb"), str::to_owned);
        assert_eq!(lines, "error[internal]: a\n    b\n");
    }

    #[test]
    fn programs_read_one_object() {
        let failure = failure();
        let json = serde_json::to_value(FailureShape::from(&failure)).unwrap();
        let expected = serde_json::json!({"error": {
            "code": "mount-source-unusable",
            "message": "sandbox `web-1` did not start",
            "cause": "mount `/srv/data` at `/data`: permission denied",
            "remedy": "choose another `--mount`",
        }});
        assert_eq!(json, expected);
    }
}
