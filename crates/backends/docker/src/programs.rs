//! The minimal-PATH profile in images: a layer in which only the listed programs are what they seem.
//!
//! Every other name in the image's directories of programs becomes a link to the agent's program, which under any name
//! but its own reports the attempt and exits 126. The layer is made once per image and list, in a container that never
//! runs, by the engine's own way to read and write files, so that it holds on engines elsewhere too. What is not listed
//! is not at its place any more, so it cannot be run by absolute path either. Not here: programs of this host as a root,
//! which are covered by binds.

use std::collections::{BTreeMap, BTreeSet, btree_map};

use belljar_backend::{Error, Result};
use belljar_codes::Code;
use belljar_machinery::rootfs;
use belljar_policy::Programs;
use bollard::Docker as Client;
use bollard::models::{ContainerConfig, ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, CreateContainerOptions, RemoveContainerOptionsBuilder,
    UploadToContainerOptionsBuilder,
};
use sha2::{Digest, Sha256};

use crate::archive::{self, Entry, Kind};
use crate::failure::{failed, is_missing};
use crate::images::{self, Image};
use crate::labels::Installation;
use crate::{agent, inside};

/// The name of such images, with a tag that says of what and for which list.
const NAME: &str = "belljar-programs";
/// How layers are made; another number makes them anew.
const VERSION: u8 = 1;

/// The image with nothing but the listed programs, made if the engine does not have it yet.
pub(crate) async fn limited(
    client: &Client,
    image: &Image,
    search_path: &[String],
    listed: &Programs,
    installation: &Installation,
) -> Result<Image> {
    let tag = tag(image, search_path, listed);
    if let Some(made) = images::look(client, &format!("{NAME}:{tag}")).await? {
        return Ok(Image { id: made.id, ..image.clone() });
    }
    let wrong = |error| failed("the image's programs cannot be limited", error);
    let body = ContainerCreateBody {
        image: Some(image.id.clone()),
        entrypoint: Some(vec![agent::program()]),
        labels: Some(installation.label()),
        host_config: Some(HostConfig {
            network_mode: Some("none".to_owned()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let created =
        client.create_container(None::<CreateContainerOptions>, body).await.map_err(wrong)?;
    let made = cover(client, &created.id, search_path, listed, &tag).await;
    let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    let removed = client.remove_container(&created.id, Some(options)).await;
    let id = made?;
    removed.map_err(wrong)?;
    Ok(Image { id, ..image.clone() })
}

fn tag(image: &Image, search_path: &[String], listed: &Programs) -> String {
    let mut hasher = Sha256::new();
    hasher.update([VERSION]);
    let words = search_path.iter().map(String::as_str).chain([""]).chain(listed.iter());
    for word in [image.id.as_str()].into_iter().chain(words) {
        hasher.update((word.len() as u64).to_le_bytes());
        hasher.update(word);
    }
    hasher.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the layer and makes it an image, whose id is returned.
async fn cover(
    client: &Client,
    container: &str,
    search_path: &[String],
    listed: &Programs,
    tag: &str,
) -> Result<String> {
    let wrong = |error| failed("the image's programs cannot be limited", error);
    let directories = directories(client, container, search_path).await.map_err(wrong)?;
    let layer = layer(client, container, &directories, listed).await?;
    let bytes = archive::write(&layer).map_err(|error| {
        Error::new(Code::StateFailed, "the layer of programs cannot be written").with_source(error)
    })?;
    let options = UploadToContainerOptionsBuilder::new().path("/").build();
    let body = bollard::body_full(bytes.into());
    client.upload_to_container(container, Some(options), body).await.map_err(wrong)?;
    let options = CommitContainerOptionsBuilder::new().container(container).repo(NAME).tag(tag);
    let config = ContainerConfig::default();
    Ok(client.commit_container(options.build(), config).await.map_err(wrong)?.id)
}

/// The directories of programs that there are, by their real names, with what is in them.
async fn directories(
    client: &Client,
    container: &str,
    search_path: &[String],
) -> Result<BTreeMap<String, Vec<Entry>>, bollard::errors::Error> {
    let usual = rootfs::SEARCH_PATH.iter().copied();
    let wanted: BTreeSet<&str> = search_path.iter().map(String::as_str).chain(usual).collect();
    let mut directories = BTreeMap::new();
    for path in wanted.into_iter().filter(|path| path.starts_with('/')) {
        let real = match inside::look(client, container, path).await {
            Ok(found) if found.is_directory => found.path,
            Ok(_) => continue,
            Err(error) if is_missing(&error) => continue,
            Err(error) => return Err(error),
        };
        if let btree_map::Entry::Vacant(place) = directories.entry(real) {
            let entries = inside::list(client, container, place.key()).await?;
            place.insert(entries);
        }
    }
    Ok(directories)
}

/// What is written over the directories: first the listed programs that are links, then all that is not listed.
async fn layer(
    client: &Client,
    container: &str,
    directories: &BTreeMap<String, Vec<Entry>>,
    listed: &Programs,
) -> Result<Vec<Entry>> {
    let wrong = |error| failed("the image's programs cannot be limited", error);
    let (mut kept, mut covered) = (Vec::new(), Vec::new());
    let mut found = BTreeSet::new();
    for (directory, entries) in directories {
        for entry in entries {
            let path = below(directory, &entry.name);
            let is_listed = listed.contains(&entry.name);
            let file = match &entry.kind {
                Kind::File { .. } => Some(path.clone()),
                // Where everything is covered, what is not listed may lead anywhere.
                Kind::Link { .. } if !is_listed && is_for_programs(directory) => None,
                Kind::Link { .. } => match inside::look(client, container, &path).await {
                    Ok(real) if !real.is_directory => Some(real.path),
                    Ok(_) => None,
                    Err(error) if is_missing(&error) => None,
                    Err(error) => return Err(wrong(error)),
                },
                Kind::Directory | Kind::Twin { .. } => None,
            };
            match file {
                Some(file) if is_listed => {
                    found.insert(entry.name.clone());
                    if file != path {
                        let stays = stays(&file, directories, listed);
                        let kind =
                            if stays { Kind::Link { to: file } } else { Kind::Twin { of: file } };
                        kept.push(Entry { name: path, kind });
                    }
                }
                file if is_covered(directory, entry, file.is_some(), directories) => {
                    covered.push(Entry { name: path, kind: Kind::Link { to: agent::program() } });
                }
                _ => {}
            }
        }
    }
    if let Some(missing) = listed.iter().find(|name| !found.contains(*name)) {
        return Err(Error::new(
            Code::ProgramNotFound,
            format!("program `{missing}` of `--programs` is not in the template"),
        )
        .with_remedy("name programs as they are found in the template's PATH"));
    }
    kept.extend(covered);
    Ok(kept)
}

/// Whether a file is still at its place when the layer is there.
fn stays(file: &str, directories: &BTreeMap<String, Vec<Entry>>, listed: &Programs) -> bool {
    let (directory, name) = file.rsplit_once('/').unwrap_or(("", file));
    let directory = if directory.is_empty() { "/" } else { directory };
    !directories.contains_key(directory) || listed.contains(name)
}

/// Whether a name that is not listed is taken. In a directory that is there for programs everything is; elsewhere, since an
/// image may search any directory, only what can be run.
fn is_covered(
    directory: &str,
    entry: &Entry,
    leads_to_file: bool,
    directories: &BTreeMap<String, Vec<Entry>>,
) -> bool {
    let path = below(directory, &entry.name);
    let holds_programs =
        directories.keys().any(|other| *other == path || other.starts_with(&format!("{path}/")));
    match entry.kind {
        _ if holds_programs => false,
        _ if is_for_programs(directory) => true,
        Kind::File { executable } => executable,
        _ => leads_to_file,
    }
}

fn is_for_programs(directory: &str) -> bool {
    matches!(directory.rsplit('/').next(), Some("bin" | "sbin"))
}

fn below(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: Kind) -> Entry {
        Entry { name: name.to_owned(), kind }
    }

    #[test]
    fn directories_of_programs_are_covered_whole_and_others_only_where_something_runs() {
        let directories = ["/usr/bin", "/", "/usr/bin/inner"]
            .map(|path| (path.to_owned(), Vec::new()))
            .into_iter()
            .collect();
        let file = |executable| Kind::File { executable };
        for (directory, name, kind, leads_to_file, expected) in [
            ("/usr/bin", "curl", file(true), true, true),
            ("/usr/bin", "data", file(false), true, true),
            ("/usr/bin", "more", Kind::Directory, false, true),
            ("/usr/bin", "inner", Kind::Directory, false, false),
            ("/", "run-me", file(true), true, true),
            ("/", "readme", file(false), true, false),
            ("/", "etc", Kind::Directory, false, false),
            ("/", "bin", Kind::Link { to: "usr/bin".into() }, false, false),
            ("/", "tool", Kind::Link { to: "opt/tool".into() }, true, true),
        ] {
            let entry = entry(name, kind);
            let covered = is_covered(directory, &entry, leads_to_file, &directories);
            assert_eq!(covered, expected, "{directory} {name}");
        }
    }
}
