//! Documents that build on others, by file.

use super::{Chain, Document, Inheritance, Layer, MAX_LEVELS, Refusal};

/// How far one document may be from another that it builds on.
pub const MAX_EXTENDS: usize = 16;

/// The chain of `name` and all that it extends, the most general first. `lookup` gives a document by the text in
/// `extends` and the name of the document that says so, with a name under which it is one and the same.
///
/// # Errors
/// Where a document is missing, extends itself, or there are too many.
pub fn extended<E: From<Refusal>>(
    name: &str,
    document: Document,
    lookup: &mut impl FnMut(&str, &str) -> Result<(String, Document), E>,
) -> Result<Chain, E> {
    let mut layers = Vec::new();
    collect(name, document, lookup, &mut Vec::new(), &mut layers)?;
    Ok(Chain::new(layers, Inheritance::DeniesStay)?)
}

fn collect<E: From<Refusal>>(
    name: &str,
    document: Document,
    lookup: &mut impl FnMut(&str, &str) -> Result<(String, Document), E>,
    open: &mut Vec<String>,
    layers: &mut Vec<Layer>,
) -> Result<(), E> {
    // What two documents have in common counts once, at its first place.
    if layers.iter().any(|layer| layer.origin == name) {
        return Ok(());
    }
    if open.iter().any(|above| above == name) {
        let refusal = Refusal::whole(
            format!("`{}` extends itself: {}", crate::shown(name), open.join(" → ")),
            "leave one of them out",
        );
        return Err(refusal.into());
    }
    if open.len() >= MAX_EXTENDS || layers.len() >= MAX_LEVELS {
        let refusal = Refusal::whole("too many documents extend each other", "join some of them");
        return Err(refusal.into());
    }
    open.push(name.to_owned());
    for file in &document.extends {
        let (found, base) = lookup(file, name)?;
        collect(&found, base, lookup, open, layers)?;
    }
    open.pop();
    layers.push(Layer { origin: name.to_owned(), document });
    Ok(())
}
