//! `belljar files …`: looking at and changing files inside a sandbox.

mod change;
mod find;
mod stream;

use belljar_api::v1;
use belljar_codes::Code;
use belljar_policy::shown;

use super::Done;
use crate::args::{FilesArgs, FilesCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Inert, print, print_json, time, word};

pub(crate) async fn files(context: &Context, args: FilesArgs) -> Result<Done, Failure> {
    match args.command {
        FilesCommand::Ls { at, depth, json } => find::list(context, at, depth, json).await,
        FilesCommand::Stat { at, follow, json } => change::stat(context, at, follow, json).await,
        FilesCommand::Search(args) => find::search(context, args).await,
        FilesCommand::Watch { at, recursive, json } => {
            find::watch(context, at, recursive, json).await
        }
        FilesCommand::Cat { at, offset, length } => stream::cat(context, at, offset, length).await,
        FilesCommand::Write { at, append, new, parents, mode, json } => {
            let mode = mode.as_deref().map(permissions).transpose()?;
            let how = match (append, new) {
                (true, _) => v1::WriteMode::Append,
                (false, true) => v1::WriteMode::CreateNew,
                (false, false) => v1::WriteMode::Truncate,
            };
            let head = v1::WriteFileRequest {
                sandbox: at.sandbox,
                path: at.path,
                mode: how.into(),
                permissions: mode,
                make_parents: parents,
                ..v1::WriteFileRequest::default()
            };
            stream::write(context, head, json).await
        }
        FilesCommand::Archive { at, format } => stream::archive(context, at, &format).await,
        FilesCommand::Extract { at, format, json } => {
            stream::extract(context, at, &format, json).await
        }
        FilesCommand::Mkdir { at, parents, json } => {
            change::make_directory(context, at, parents, json).await
        }
        FilesCommand::Mv { from, to, replace, json } => {
            change::rename(context, from, to, replace, json).await
        }
        FilesCommand::Cp { from, to, recursive, replace, json } => {
            let request = v1::CopyFileRequest {
                sandbox: from.sandbox,
                from: from.path,
                to,
                recursive,
                replace,
            };
            change::copy(context, request, json).await
        }
        FilesCommand::Rm { at, recursive, json } => {
            change::remove(context, at, recursive, json).await
        }
        FilesCommand::Chmod { at, mode, json } => {
            let permissions = permissions(&mode)?;
            change::change_mode(context, at, permissions, json).await
        }
    }
}

/// Permission bits in octal.
fn permissions(text: &str) -> Result<u32, Failure> {
    u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777).ok_or_else(|| {
        Failure::new(Code::InvalidArgument, format!("`{}` are no permissions", shown(text)))
            .with_remedy("write them in octal, such as `644` or `0755`")
    })
}

/// A name from a sandbox, on one line and without commands to a terminal.
fn harmless(text: &str) -> String {
    Inert::default().push(text.replace(['\n', '\r'], "\u{fffd}").as_bytes())
}

fn show(file: &v1::FileInfo, json: bool) -> Result<Done, Failure> {
    if json {
        print_json(file)?;
        return Ok(Done::Success);
    }
    let mut text = String::new();
    let mut line = |name: &str, value: &str| text.push_str(&format!("{name:<12}{value}\n"));
    line("path", &harmless(&file.path));
    line("kind", &word(&file.kind()).replace('_', " "));
    line("size", &file.size.to_string());
    line("mode", &format!("{:04o}", file.mode));
    line("owner", &format!("{}:{}", file.uid, file.gid));
    line("modified", &time(file.modified_at.as_ref()));
    if let Some(target) = &file.link_target {
        line("points to", &harmless(target));
    }
    print(&text)?;
    Ok(Done::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_octal() {
        let check = |text: &str, expected: Option<u32>| {
            assert_eq!(permissions(text).ok(), expected, "{text}");
        };
        check("644", Some(0o644));
        check("0755", Some(0o755));
        check("7777", Some(0o7777));
        check("10000", None);
        check("888", None);
        check("u+x", None);
    }
}
