// Installing Python packages by name, and by nothing else: what a caller passes on may come from a model.
import { type BelljarError, errorOf, invalid } from "./errors.js";
import type * as api from "./generated/api.js";

/** A name, perhaps with extras and versions, as PEP 508 has them. Never an option, a path or a URL. */
const REQUIREMENT =
  /^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[A-Za-z0-9._, -]+\])?\s*(?:(?:===?|~=|!=|<=?|>=?)\s*[A-Za-z0-9.*+!_-]+(?:\s*,\s*(?:===?|~=|!=|<=?|>=?)\s*[A-Za-z0-9.*+!_-]+)*)?$/;

const INDEX_HOSTS = ["pypi.org", "files.pythonhosted.org"];

export function pipCommand(packages: readonly string[]): string[] {
  if (packages.length === 0) throw invalid("no package is named", "name at least one");
  const wrong = packages.find((name) => name.length > 200 || !REQUIREMENT.test(name));
  if (wrong !== undefined) {
    throw invalid(`\`${wrong}\` is no name of a package`, "write names, with versions if need be: `requests==2.32.3`");
  }
  return ["python3", "-m", "pip", "install", "--user", "--no-input", "--disable-pip-version-check", "--", ...packages];
}

/** Why packages cannot be had in a sandbox, where that is known beforehand. */
export function pipRefusal(info: api.Sandbox): BelljarError | undefined {
  if (info.isolation?.networkMode !== "none") return undefined;
  return errorOf({
    code: "conflicting-options",
    message: `sandbox \`${info.name ?? info.sandboxId}\` reaches no network, so no package can be installed`,
    cause: `not allowed: ${INDEX_HOSTS.join(", ")}`,
    remedy: `create it with \`allow: ${JSON.stringify(INDEX_HOSTS)}\` or \`profile: "packages"\``,
  });
}
