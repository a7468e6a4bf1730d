//! Policies of a command line: documents are read here, because the server stands elsewhere.

use std::path::{Path, PathBuf};

use belljar_api::v1;
use belljar_codes::Code;
use belljar_policy::document::{Document, Layer, Source};
use belljar_policy::shown;

use crate::args::{PlaceArgs, SandboxArgs, ToldArgs};
use crate::commands::policy::load;
use crate::failure::Failure;

/// What a new sandbox is to run under.
pub(super) fn spec(args: &SandboxArgs) -> Result<Option<v1::PolicySpec>, Failure> {
    if args.policy_record {
        return Ok(Some(v1::PolicySpec { record: true, ..v1::PolicySpec::default() }));
    }
    let Some(word) = &args.policy else { return Ok(None) };
    if let Some(name) = word.to_str().filter(|word| is_name(word)) {
        let name = Some(name.to_owned());
        return Ok(Some(v1::PolicySpec { name, ..v1::PolicySpec::default() }));
    }
    let place = PlaceArgs { file: PathBuf::from(word), root: args.policy_root.clone(), at: None };
    let documents = documents(&place)?;
    Ok(Some(v1::PolicySpec { documents, ..v1::PolicySpec::default() }))
}

/// A word that is no path: neither written like one nor there.
fn is_name(word: &str) -> bool {
    let like_a_file = [".yaml", ".yml", ".json"].iter().any(|end| word.ends_with(end));
    !word.contains('/') && !like_a_file && word != "." && word != ".." && !Path::new(word).exists()
}

/// The documents of a place as the server takes them: resolved, with whole paths.
pub(crate) fn documents(place: &PlaceArgs) -> Result<Vec<v1::PolicyDocument>, Failure> {
    load::place(place)?.resolved().into_iter().map(document).collect()
}

fn document(layer: Layer) -> Result<v1::PolicyDocument, Failure> {
    let Layer { origin, mut document } = layer;
    let base = Path::new(&origin).parent().unwrap_or(Path::new("/")).to_owned();
    absolute_sources(&mut document, &base);
    let text = serde_json::to_string(&document).map_err(|error| {
        Failure::new(Code::Internal, "a document cannot be written").caused_by(&error)
    })?;
    Ok(v1::PolicyDocument { origin, text })
}

/// Paths of the host are relative to the document that names them.
fn absolute_sources(document: &mut Document, base: &Path) {
    let absolute = |path: &mut String| {
        if Path::new(path.as_str()).is_relative() {
            *path = base.join(&*path).display().to_string();
        }
    };
    document.sandbox_mounts.input_dir.iter_mut().for_each(absolute);
    document.sandbox_mounts.output_dir.iter_mut().for_each(absolute);
    let mounts = document.filesystem.iter_mut().flat_map(|section| &mut section.mounts);
    mounts.map(|mount| &mut mount.source).for_each(absolute);
    for credential in &mut document.credentials {
        if let Source::File(path) = &mut credential.source {
            absolute(path);
        }
    }
}

/// What a policy is told about a command, as a JSON object.
pub(crate) fn context(args: &ToldArgs) -> Result<Option<String>, Failure> {
    if args.context.is_empty() {
        return Ok(None);
    }
    let mut object = serde_json::Map::new();
    for entry in &args.context {
        let Some((name, value)) = entry.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            let message = format!("`--context {}` has no name or no `=`", shown(entry));
            return Err(
                Failure::new(Code::InvalidArgument, message).with_remedy("write `NAME=VALUE`")
            );
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        object.insert(name.to_owned(), value);
    }
    Ok(Some(serde_json::Value::Object(object).to_string()))
}
