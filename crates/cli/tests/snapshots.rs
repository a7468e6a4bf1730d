//! Files of a sandbox that outlive it, from the outside.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::fs;

use support::Place;

/// What programs leave behind: modes, links within and out of the directory as environments have them, odd names.
const FILL: &str = "set -e
mkdir -p venv/bin 'odd name/ü'
printf '#!/bin/sh\\necho ran\\n' > venv/bin/tool
chmod 751 venv/bin/tool
ln -s /usr/bin/env venv/bin/python3
ln -s python3 venv/bin/python
ln -s ../../../etc/hostname up
ln -s nowhere dangling
echo kept > 'odd name/ü/file'
mkfifo pipe
echo home > /home/user/.profile
echo out > /output/result
echo lost > /tmp/scratch";

const LOOK: &str = "set -e
stat -c '%n %a %F' venv/bin/tool 'odd name/ü/file'
readlink venv/bin/python3 venv/bin/python up dangling
cat 'odd name/ü/file' /home/user/.profile /output/result
venv/bin/tool
venv/bin/python echo through the links
test ! -e /tmp/scratch && test ! -e pipe";

const SEEN: &str = "venv/bin/tool 751 regular file
odd name/ü/file 644 regular file
/usr/bin/env
python3
../../../etc/hostname
nowhere
kept
home
out
ran
through the links
";

fn filled() -> Option<Place> {
    let place = Place::with_sandboxes()?;
    place.run(&["create", "--name", "one", "--memory", "300m", "--label", "a=b"]).exits(0);
    place.run(&["exec", "one", "--cmd", FILL]).exits(0);
    Some(place)
}

#[test]
fn what_a_sandbox_wrote_comes_back_in_another() {
    let Some(place) = filled() else { return };
    let words = ["snapshot", "create", "one", "--name", "base", "--label", "k=v", "--json"];
    let kept = place.run(&words).exits(0).json();
    assert_eq!(kept["paths"], serde_json::json!(["/workspace", "/home/user", "/output"]));
    assert_eq!((&kept["name"], &kept["labels"]["k"]), (&"base".into(), &"v".into()));
    assert_eq!(kept["skipped"], 1, "the pipe: {kept}");
    let again = place.run(&["snapshot", "create", "one", "--name", "base", "--json"]).exits(125);
    assert_eq!(again.json()["error"]["code"], "snapshot-exists");
    place.run(&["destroy", "one"]).exits(0);

    let restored = place.run(&["snapshot", "restore", "base", "--name", "two", "--json"]).exits(0);
    let restored = restored.json();
    assert_eq!(restored["limits"]["memory_bytes"], 300 << 20, "as it was: {restored}");
    assert_eq!(restored["isolation"]["network_mode"], "none");
    place.run(&["exec", "two", "--cmd", LOOK]).exits(0).says(SEEN);
    let words = ["snapshot", "restore", "base", "--memory", "200m", "--user", "root", "--json"];
    let other = place.run(&words).exits(0).json();
    assert_eq!(other["limits"]["memory_bytes"], 200 << 20);
    let taken = place.run(&["snapshot", "restore", "base", "--name", "two", "--json"]).exits(125);
    assert_eq!(taken.json()["error"]["code"], "sandbox-exists");

    let id = kept["snapshot_id"].as_str().unwrap();
    let list = place.run(&["snapshot", "list", "--label", "k=v", "--json"]).exits(0).json();
    assert_eq!((list.as_array().unwrap().len(), &list[0]["digest"]), (1, &kept["digest"]));
    assert!(place.run(&["snapshot", "list"]).exits(0).stdout.contains(id));
    assert!(place.run(&["snapshot", "inspect", id]).exits(0).stdout.contains("sha256:"));
    place.run(&["snapshot", "rm", "base"]).exits(0);
    let gone = place.run(&["snapshot", "inspect", id, "--json"]).exits(125).json();
    assert_eq!(gone["error"]["code"], "snapshot-not-found");
    let left = fs::read_dir(place.state_dir().join("snapshots/default/blobs")).unwrap();
    assert_eq!(left.count(), 0);
}

#[test]
fn what_was_changed_on_disk_is_refused() {
    let Some(place) = filled() else { return };
    place.run(&["snapshot", "create", "one", "--name", "base", "--path", "/workspace"]).exits(0);
    let mut blobs = fs::read_dir(place.state_dir().join("snapshots/default/blobs")).unwrap();
    let path = blobs.next().unwrap().unwrap().path();
    let mut content = fs::read(&path).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(&path, content).unwrap();
    let words = ["snapshot", "restore", "base", "--name", "two", "--json"];
    let refused = place.run(&words).exits(125).json();
    assert_eq!(refused["error"]["code"], "snapshot-damaged", "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("`/workspace`") && message.contains("not what was saved"),
        "{message}"
    );
    let none = place.run(&["inspect", "two", "--json"]).exits(125).json();
    assert_eq!(none["error"]["code"], "sandbox-not-found");
}

#[test]
fn a_file_of_holes_does_not_become_a_full_disk() {
    let Some(place) = Place::with_sandboxes() else { return };
    place.run(&["create", "--name", "one", "--disk", "32m"]).exits(0);
    place.run(&["exec", "one", "--cmd", "truncate -s 100G holes"]).exits(0);
    let refused = place.run(&["snapshot", "create", "one", "--json"]).exits(125).json();
    assert_eq!(refused["error"]["code"], "snapshot-too-large", "{refused}");
    place.run(&["exec", "one", "--cmd", "truncate -s 1M holes"]).exits(0);
    place.run(&["snapshot", "create", "one"]).exits(0);
}

#[test]
fn other_tenants_find_nothing() {
    let Some(place) = filled() else { return };
    let id = place.run(&["snapshot", "create", "one", "--name", "base"]).exits(0).stdout;
    let id = id.trim();
    place.run(&["tenants", "create", "other"]).exits(0);
    let key = place.run(&["keys", "create", "--tenant", "other"]).exits(0).stdout;
    let socket = format!("unix:{}", place.state_dir().join("server.sock").display());
    let other = [("BELLJAR_SERVER", socket.as_str()), ("BELLJAR_API_KEY", key.trim())];
    for reference in [id, "base"] {
        for words in [&["inspect"][..], &["restore"], &["rm"]] {
            let words = [&["snapshot"][..], words, &[reference, "--json"]].concat();
            let missing = place.run_with(&words, &other).exits(125).json();
            assert_eq!(missing["error"]["code"], "snapshot-not-found", "{words:?} {missing}");
        }
    }
    place.run_with(&["snapshot", "list", "--json"], &other).exits(0).says("[]\n");
    place.run(&["snapshot", "inspect", id]).exits(0);
}

#[test]
fn a_policy_comes_with_the_files() {
    let Some(place) = Place::with_sandboxes() else { return };
    let rule = "{field: command, operator: matches, value: forbidden}";
    place.write(
        "strict.yaml",
        &format!(
            "name: strict\ndefaults: {{timeout_seconds: 20}}\nnetwork: {{mode: allowlist, rules: [{{host: a.example, verdict: allow}}]}}\nrules: [{{name: no-forbidden, condition: {rule}, action: deny}}]\n"
        ),
    );
    place.write("open.yaml", "name: open\n");
    let path = |name: &str| place.path(name).display().to_string();
    place.run(&["policy", "put", "strict", &path("strict.yaml")]).exits(0);
    // Without a network, so that it runs wherever sandboxes do.
    let none = ["--network", "none"];
    let mut words = vec!["create", "--name", "one", "--policy", "strict@1", "--json"];
    words.extend(none);
    let policy = place.run(&words).exits(0).json()["policy"].clone();
    assert_eq!((&policy["name"], &policy["version"]), (&"strict".into(), &1.into()));
    place.run(&["exec", "one", "--cmd", "echo kept > file"]).exits(0);
    let kept =
        place.run(&["snapshot", "create", "one", "--name", "base", "--json"]).exits(0).json();
    assert_eq!(kept["policy"], policy);
    let shown = place.run(&["snapshot", "inspect", "base"]).exits(0).stdout;
    assert!(shown.contains(policy["digest"].as_str().unwrap()), "{shown}");
    // Neither the sandbox nor the name has to be there any more.
    place.run(&["destroy", "one"]).exits(0);
    place.run(&["policy", "rm", "strict"]).exits(0);

    let restored = place.run(&["snapshot", "restore", "base", "--name", "two", "--json"]).exits(0);
    assert_eq!(restored.json()["policy"], policy);
    assert_eq!(restored.json()["isolation"]["network_mode"], "none");
    let denied = |name: &str| {
        place.run(&["exec", name, "--cmd", "echo forbidden", "--json"]).exits(125).json()
    };
    assert_eq!(denied("two")["error"]["code"], "policy-denied");
    place.run(&["exec", "two", "--cmd", "cat file"]).exits(0).says("kept\n");
    let words = ["audit", "query", "--rule", "no-forbidden", "--sandbox", "two", "--json"];
    let record: serde_json::Value =
        serde_json::from_str(place.run(&words).exits(0).stdout.trim()).unwrap();
    assert!(record.to_string().contains(policy["digest"].as_str().unwrap()), "{record}");
    // More than it grants is refused here, too.
    let wider = ["snapshot", "restore", "base", "--network", "full", "--json"];
    assert_eq!(place.run(&wider).exits(125).json()["error"]["code"], "policy-denied");

    // A snapshot of what was restored has it as well; another policy takes its place where it is named.
    place.run(&["snapshot", "create", "two", "--name", "next"]).exits(0);
    let words = ["snapshot", "restore", "next", "--name", "three"];
    place.run(&words).exits(0);
    assert_eq!(denied("three")["error"]["code"], "policy-denied");
    let open = path("open.yaml");
    place.run(&["snapshot", "restore", "next", "--name", "four", "--policy", &open]).exits(0);
    place.run(&["exec", "four", "--cmd", "echo forbidden"]).exits(0).says("forbidden\n");

    // Documents that were changed on disk are not the policy.
    let id = kept["snapshot_id"].as_str().unwrap();
    let manifest = place.state_dir().join(format!("snapshots/default/{id}.json"));
    let text = fs::read_to_string(&manifest).unwrap();
    assert!(text.contains("no-forbidden"));
    fs::write(&manifest, text.replace("no-forbidden", "mo-forbidden")).unwrap();
    let refused = place.run(&["snapshot", "restore", "base", "--json"]).exits(125).json();
    assert_eq!(refused["error"]["code"], "snapshot-damaged", "{refused}");

    // One that cannot be read at all goes by its id.
    fs::write(&manifest, "{").unwrap();
    let refused = place.run(&["snapshot", "inspect", id, "--json"]).exits(125).json();
    assert_eq!(refused["error"]["code"], "snapshot-damaged", "{refused}");
    place.run(&["snapshot", "rm", id]).exits(0);
    assert!(!manifest.exists());
    let none = place.run(&["snapshot", "inspect", id, "--json"]).exits(125).json();
    assert_eq!(none["error"]["code"], "snapshot-not-found", "{none}");
}

#[test]
fn restoring_leaves_directories_of_a_policy_alone() {
    let Some(place) = Place::with_sandboxes() else { return };
    place.write("out/report", "of the host");
    place.write("shared.yaml", "name: shared\nsandbox_mounts: {output_dir: out}\n");
    let policy = place.path("shared.yaml").display().to_string();
    place.run(&["create", "--name", "one", "--policy", &policy]).exits(0);
    place.run(&["exec", "one", "--cmd", "echo kept > file; cat /output/report"]).exits(0);
    place.run(&["snapshot", "create", "one", "--name", "base"]).exits(0);
    place.write("out/report", "newer");
    place.run(&["snapshot", "restore", "base", "--name", "two"]).exits(0);
    place.run(&["exec", "two", "--cmd", "cat file /output/report"]).exits(0).says("kept\nnewer");
    assert_eq!(fs::read_to_string(place.path("out/report")).unwrap(), "newer");
}
