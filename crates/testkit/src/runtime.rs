//! Whether sandboxes can be made on an OCI runtime here.

use crate::{Installation, Mode};

/// Why there can be none on the runtime of a mode, in the words of the product's own probe, which starts one.
pub(crate) fn unavailable(mode: Mode) -> Option<String> {
    let runtime = mode.runtime().expect("a mode with a runtime");
    let belljar = Installation::new(Mode::Root);
    belljar.embed();
    if mode == Mode::Runsc {
        belljar.find_runtimes();
    }
    let finished = belljar.run(["probe", "--backend", "oci", "--json"]);
    let probes = finished.json();
    belljar.assert_nothing_left();
    let probe = probes.as_array().into_iter().flatten().find(|probe| probe["runtime"] == runtime);
    let probe = probe.unwrap_or_else(|| panic!("the probe says nothing of {runtime}: {finished}"));
    if probe["works"] == true {
        return None;
    }
    Some(probe["detail"].as_str().unwrap_or_default().to_owned())
}
