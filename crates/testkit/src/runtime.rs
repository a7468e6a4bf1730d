//! Whether sandboxes can be made on an OCI runtime here.

use crate::{Installation, Mode};

/// A probe has a limit of time, which a machine under load may miss now and then.
const ATTEMPTS: usize = 3;

/// Why there can be none on the runtime of a mode, in the words of the product's own probe, which starts one.
pub(crate) fn unavailable(mode: Mode) -> Option<String> {
    let runtime = mode.runtime().expect("a mode with a runtime");
    let belljar = Installation::new(Mode::Root);
    belljar.embed();
    if mode == Mode::Runsc {
        belljar.find_runtimes();
    }
    let mut reason = None;
    for _ in 0..ATTEMPTS {
        let finished = belljar.run(["probe", "--backend", "oci", "--refresh", "--json"]);
        let probes = finished.json();
        let mut probes = probes.as_array().into_iter().flatten();
        let probe = probes.find(|probe| probe["runtime"] == runtime);
        let probe =
            probe.unwrap_or_else(|| panic!("the probe says nothing of {runtime}: {finished}"));
        let detail = probe["detail"].as_str().unwrap_or_default();
        reason = (probe["works"] != true).then(|| detail.to_owned());
        if !detail.contains("did not start within") {
            break;
        }
    }
    belljar.assert_nothing_left();
    reason
}
