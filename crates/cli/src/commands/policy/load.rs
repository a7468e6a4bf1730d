//! Documents from files: one with what it extends, or those of directories from a root down.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use belljar_codes::Code;
use belljar_policy::document::{
    Chain, Document, Format, Inheritance, Layer, MAX_BYTES, Refusal, extended,
};
use belljar_policy::{Invalid, shown};

use crate::args::PlaceArgs;
use crate::failure::Failure;

/// The names of documents in directories; the first that is there counts.
const NAMES: [&str; 4] = ["belljar.yaml", "belljar.yml", "governance.yaml", "governance.yml"];

/// What counts at a place: a file, or the directories from the root to it.
pub(crate) fn place(args: &PlaceArgs) -> Result<Chain, Failure> {
    let chain = if args.file.is_dir() {
        directories(&args.file, args.root.as_deref().unwrap_or(&args.file))?
    } else {
        file(&args.file)?
    };
    match &args.at {
        None => Ok(chain),
        Some(path) => chain.at(path).ok_or_else(|| {
            let message = format!("no document is for the path `{}`", shown(path));
            Failure::new(Code::InvalidPolicy, message)
                .with_remedy("look at `scope` in the documents")
        }),
    }
}

/// A document and what it extends.
pub(super) fn file(path: &Path) -> Result<Chain, Failure> {
    let document = document(path)?;
    let name = plain(path).display().to_string();
    extended(&name, document, &mut |file: &str, from: &str| {
        let base = Path::new(from).parent().unwrap_or(Path::new(""));
        let path = base.join(file);
        Ok((plain(&path).display().to_string(), self::document(&path)?))
    })
    .map_err(|failure: LoadFailure| failure.0)
}

/// Documents on the way from `root` down to `directory`.
fn directories(directory: &Path, root: &Path) -> Result<Chain, Failure> {
    let resolve = |path: &Path| path.canonicalize().map_err(|error| unreadable(path, &error));
    let (directory, root) = (resolve(directory)?, resolve(root)?);
    let Ok(below) = directory.strip_prefix(&root) else {
        let message = format!("`{}` is not below the root", shown(&directory.to_string_lossy()));
        return Err(Failure::new(Code::InvalidArgument, message)
            .with_remedy("name a root that the directory is in"));
    };
    let mut layers = Vec::new();
    let mut here = root.clone();
    let steps = std::iter::once(PathBuf::new()).chain(below.iter().map(PathBuf::from));
    for step in steps {
        here.push(step);
        let found = NAMES.iter().map(|name| here.join(name)).find(|path| path.is_file());
        if let Some(path) = found {
            // What a document of a directory extends comes directly above it.
            layers.extend(file(&path)?.layers().iter().cloned());
        }
    }
    layers.dedup_by(|later: &mut Layer, earlier| later.origin == earlier.origin);
    if layers.is_empty() {
        let message = format!("there is no policy in `{}`", shown(&directory.to_string_lossy()));
        return Err(Failure::new(Code::InvalidPolicy, message)
            .with_remedy("write a `belljar.yaml`, or name a file"));
    }
    Chain::new(layers, Inheritance::DeniesStay).map_err(|refusal| LoadFailure::from(refusal).0)
}

fn document(path: &Path) -> Result<Document, Failure> {
    let (text, format) = text(path)?;
    Document::parse(&text, format).map_err(|refusal| refused(path, refusal))
}

/// The text of a file, no longer than a document may be.
pub(super) fn text(path: &Path) -> Result<(String, Format), Failure> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let mut bytes = Vec::new();
    let bound = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    file.take(bound).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    let text = String::from_utf8(bytes).map_err(|error| unreadable(path, &error))?;
    Ok((text, Format::of_file(&path.to_string_lossy())))
}

pub(super) fn refused(path: &Path, refusal: Refusal) -> Failure {
    let invalid = Invalid::from(refusal);
    let message = format!("{}: {}", shown(&path.to_string_lossy()), invalid.message);
    Failure::new(invalid.code, message).with_remedy(invalid.remedy)
}

fn unreadable(path: &Path, error: &dyn std::error::Error) -> Failure {
    let message = format!("`{}` cannot be read", shown(&path.to_string_lossy()));
    Failure::new(Code::InvalidPolicy, message)
        .caused_by(error)
        .with_remedy("name a policy document in YAML or JSON")
}

/// The same file by one name, so that a document which extends itself is noticed.
fn plain(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Refusals of the chain itself, and failures to read, are one kind here.
struct LoadFailure(Failure);

impl From<Refusal> for LoadFailure {
    fn from(refusal: Refusal) -> Self {
        Self(Invalid::from(refusal).into())
    }
}

impl From<Failure> for LoadFailure {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}
