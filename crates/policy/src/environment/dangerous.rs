//! Names that subvert loaders, interpreters or the C library.
//!
//! The sandbox's wall does not depend on this list: it keeps a value that came along by accident (from an agent's own
//! shell, from a tool's settings) from changing which code runs. Names that only extend a search path which people
//! use every day (`PYTHONPATH`, `PERL5LIB`, `CLASSPATH`, `RUBYLIB`, `NODE_PATH`) are not on it.

/// Every name that begins so.
const PREFIXES: &[(&str, &str)] = &[
    ("LD_", "the dynamic loader loads or reports other code"),
    ("DYLD_", "the dynamic loader of another system loads other code"),
    ("_RLD", "the dynamic loader of another system loads other code"),
    ("BASH_FUNC_", "shells import functions that replace commands"),
];

/// Exactly these names.
const NAMES: &[(&str, &str)] = &[
    // The C library: what it ignores for setuid programs, for the same reason.
    ("GCONV_PATH", "the C library loads character converters from there"),
    ("GETCONF_DIR", "the C library runs programs from there"),
    ("GLIBC_TUNABLES", "the C library's allocator and loader behave differently"),
    ("HOSTALIASES", "the C library resolves host names differently"),
    ("LOCALDOMAIN", "the C library resolves host names differently"),
    ("LOCPATH", "the C library loads locales from there"),
    ("MALLOC_TRACE", "the C library writes a file of that name"),
    ("NIS_PATH", "the C library resolves names differently"),
    ("NLSPATH", "the C library loads message formats from there"),
    ("RESOLV_HOST_CONF", "the C library resolves host names differently"),
    ("RES_OPTIONS", "the C library resolves host names differently"),
    ("TZDIR", "the C library loads time zones from there"),
    ("SHLIB_PATH", "the dynamic loader of another system loads other code"),
    ("LIBPATH", "the dynamic loader of another system loads other code"),
    // Shells: code before the first command.
    ("BASH_ENV", "bash runs that file before every script"),
    ("ENV", "sh runs that file when it starts"),
    ("ZDOTDIR", "zsh runs files from there when it starts"),
    ("SHELLOPTS", "bash changes its options, tracing among them"),
    ("BASHOPTS", "bash changes its options"),
    ("PS4", "bash expands it as code while tracing"),
    ("PROMPT_COMMAND", "bash runs it before every prompt"),
    ("IFS", "old shells split words differently"),
    // Interpreters: code or options before the program.
    ("PYTHONSTARTUP", "Python runs that file in interactive sessions"),
    ("PYTHONHOME", "Python takes its own library from there"),
    ("PYTHONINSPECT", "Python stays open after the program"),
    ("PYTHONUSERBASE", "Python loads site packages from there"),
    ("PYTHONBREAKPOINT", "Python calls that function at breakpoints"),
    ("PERL5OPT", "Perl loads modules before the program"),
    ("PERL5DB", "Perl runs that code in its debugger"),
    ("RUBYOPT", "Ruby loads libraries before the program"),
    ("NODE_OPTIONS", "Node loads modules before the program"),
    ("NODE_REPL_EXTERNAL_MODULE", "Node loads that module as its shell"),
    ("JAVA_TOOL_OPTIONS", "Java loads agents before the program"),
    ("_JAVA_OPTIONS", "Java loads agents before the program"),
    ("JDK_JAVA_OPTIONS", "Java loads agents before the program"),
    ("LUA_INIT", "Lua runs that code before the program"),
    ("PHPRC", "PHP takes its configuration from there"),
    ("PHP_INI_SCAN_DIR", "PHP takes its configuration from there"),
    ("DOTNET_STARTUP_HOOKS", ".NET loads assemblies before the program"),
    ("CORECLR_PROFILER_PATH", ".NET loads that library as a profiler"),
    ("COR_PROFILER_PATH", ".NET loads that library as a profiler"),
    ("ERL_AFLAGS", "Erlang evaluates code before the program"),
    ("ERL_FLAGS", "Erlang evaluates code before the program"),
    ("ERL_ZFLAGS", "Erlang evaluates code before the program"),
    ("RUSTC_WRAPPER", "Cargo runs that program as the compiler"),
    ("RUSTC_WORKSPACE_WRAPPER", "Cargo runs that program as the compiler"),
    ("GCC_EXEC_PREFIX", "GCC runs its parts from there"),
    ("COMPILER_PATH", "GCC runs its parts from there"),
    ("GIT_EXEC_PATH", "Git runs its parts from there"),
    ("GIT_SSH_COMMAND", "Git runs that command to connect"),
    ("GIT_EXTERNAL_DIFF", "Git runs that program to compare files"),
    ("OPENSSL_CONF", "OpenSSL loads engines that this file names"),
    ("OPENSSL_ENGINES", "OpenSSL loads engines from there"),
    ("OPENSSL_MODULES", "OpenSSL loads providers from there"),
];

/// Why a name is taken out of the environment, or `None` where it stays.
#[must_use]
pub fn dangerous(name: &str) -> Option<&'static str> {
    let exact = NAMES.iter().find(|(known, _)| *known == name);
    let prefix = || PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix));
    exact.or_else(prefix).map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subverting_names_are_known() {
        for name in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "LD_AUDIT",
            "LD_",
            "DYLD_INSERT_LIBRARIES",
            "GCONV_PATH",
            "BASH_ENV",
            "ENV",
            "BASH_FUNC_ls",
            "NODE_OPTIONS",
            "PYTHONSTARTUP",
            "GLIBC_TUNABLES",
            "_JAVA_OPTIONS",
        ] {
            assert!(dangerous(name).is_some(), "{name}");
        }
    }

    #[test]
    fn everyday_names_are_not() {
        for name in [
            "PATH",
            "HOME",
            "LANG",
            "LC_ALL",
            "TERM",
            "TMPDIR",
            "PYTHONPATH",
            "NODE_PATH",
            "NODE_ENV",
            "ENVIRONMENT",
            "GOFLAGS",
            "RUSTFLAGS",
            "LDFLAGS",
            "EDITOR",
            "ld_preload",
            "HTTP_PROXY",
            "",
        ] {
            assert_eq!(dangerous(name), None, "{name}");
        }
    }

    #[test]
    fn the_table_is_sound() {
        for (index, (name, reason)) in NAMES.iter().enumerate() {
            assert!(
                !NAMES[..index].iter().any(|(other, _)| other == name),
                "{name} is there twice"
            );
            assert!(
                !PREFIXES.iter().any(|(prefix, _)| name.starts_with(prefix)),
                "{name} has a prefix"
            );
            assert!(!reason.is_empty() && !reason.ends_with('.'), "{name}");
        }
    }
}
