//! The names that are watched, in one table.

use super::Rule;

/// Functions that are there without an import.
const BUILTINS: &[(&str, Rule)] = &[
    ("eval", Rule::DynamicCode),
    ("exec", Rule::DynamicCode),
    ("compile", Rule::DynamicCode),
    ("execfile", Rule::DynamicCode),
    ("__import__", Rule::DynamicImport),
];

/// A module, what in it is watched (`x*` is every name that begins so), and why.
const MODULES: &[(&str, &[&str], Rule)] = &[
    ("os", SYSTEM, Rule::Shell),
    ("posix", SYSTEM, Rule::Shell),
    ("nt", SYSTEM, Rule::Shell),
    (
        "subprocess",
        &[
            "run",
            "call",
            "check_call",
            "check_output",
            "Popen",
            "getoutput",
            "getstatusoutput",
            // `asyncio.subprocess`
            "create_subprocess_*",
        ],
        Rule::Shell,
    ),
    ("_posixsubprocess", &["fork_exec"], Rule::Shell),
    ("asyncio", &["create_subprocess_*"], Rule::Shell),
    ("pty", &["spawn"], Rule::Shell),
    ("pexpect", &["spawn*", "run*", "popen_spawn"], Rule::Shell),
    ("platform", &["popen"], Rule::Shell),
    ("popen2", &["*"], Rule::Shell),
    ("commands", &["getoutput", "getstatus", "getstatusoutput"], Rule::Shell),
    ("code", &["interact", "InteractiveInterpreter", "InteractiveConsole"], Rule::DynamicCode),
    ("codeop", &["*"], Rule::DynamicCode),
    ("types", &["CodeType", "FunctionType"], Rule::DynamicCode),
    ("runpy", &["run_module", "run_path"], Rule::DynamicCode),
    ("importlib", &["*"], Rule::DynamicImport),
    ("_frozen_importlib", &["*"], Rule::DynamicImport),
    ("imp", &["*"], Rule::DynamicImport),
    ("zipimport", &["*"], Rule::DynamicImport),
    ("pkgutil", &["resolve_name", "ImpImporter", "ImpLoader"], Rule::DynamicImport),
    (
        "ctypes",
        &["CDLL", "PyDLL", "WinDLL", "OleDLL", "LibraryLoader", "*dll", "pythonapi"],
        Rule::NativeCode,
    ),
    ("_ctypes", &["dlopen", "LoadLibrary"], Rule::NativeCode),
    ("cffi", &["FFI"], Rule::NativeCode),
];

const SYSTEM: &[&str] = &["system", "popen*", "exec*", "spawn*", "posix_spawn*", "startfile"];

/// Methods of any object: those of asyncio's event loops.
const METHODS: &[&str] = &["subprocess_exec", "subprocess_shell"];

/// Parts of `importlib` that read data about packages and import nothing.
const HARMLESS: &[&str] = &["importlib.metadata", "importlib.resources", "importlib.abc"];

/// What a dotted name stands for, if it is watched.
pub(super) fn judge(path: &str) -> Option<(Rule, String)> {
    let path = path.strip_prefix("__builtins__.").unwrap_or(path);
    let path = path.strip_prefix("builtins.").unwrap_or(path);
    let parts: Vec<&str> = path.split('.').collect();
    let (first, more) = parts.split_first()?;
    if more.iter().all(|part| part.starts_with("__"))
        && let Some((name, rule)) = BUILTINS.iter().find(|(name, _)| name == first)
    {
        return Some((*rule, (*name).to_owned()));
    }
    for (at, pair) in parts.windows(2).enumerate() {
        let [module, member] = *pair else { continue };
        if METHODS.contains(&member) {
            return Some((Rule::Shell, member.to_owned()));
        }
        let Some((_, members, rule)) = MODULES.iter().find(|(name, ..)| *name == module) else {
            continue;
        };
        let name = format!("{module}.{member}");
        if HARMLESS.contains(&name.as_str())
            || member.starts_with("__") && member != "__import__"
            || !members.iter().any(|pattern| fits(pattern, member))
        {
            continue;
        }
        // Below a whole module, the last word says what is done: `importlib.util.module_from_spec`.
        let name = match parts.get(at + 2) {
            Some(inner) if *members == ["*"] && !inner.starts_with("__") => {
                format!("{name}.{inner}")
            }
            _ => name,
        };
        return Some((*rule, name));
    }
    None
}

/// Whether a name has to do with the table at all, so that an alias of it is worth keeping.
pub(super) fn concerns(path: &str) -> bool {
    path.split('.').any(|part| is_module(part) || is_namespace(part))
}

pub(super) fn is_module(name: &str) -> bool {
    name == "builtins" || MODULES.iter().any(|(module, ..)| *module == name)
}

/// Names that lead to the watched ones.
fn is_namespace(name: &str) -> bool {
    BUILTINS.iter().any(|(builtin, _)| *builtin == name)
        || ["sys", "getattr", "vars", "globals", "locals", "__builtins__"].contains(&name)
}

fn fits(pattern: &str, name: &str) -> bool {
    match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
        (Some(begin), _) => name.starts_with(begin),
        (_, Some(end)) => name.ends_with(end),
        _ => pattern == name,
    }
}
