#![allow(clippy::unwrap_used, reason = "a test may fail")]

use proptest::prelude::*;

use super::*;

/// Findings as `line:column rule name`.
fn found(code: &str) -> Vec<String> {
    let show = |finding: &Finding| {
        let Finding { line, column, rule, name } = finding;
        format!("{line}:{column} {} {name}", rule.as_str())
    };
    python(code).iter().map(show).collect()
}

#[track_caller]
fn check(code: &str, expected: &[&str]) {
    assert_eq!(found(code), expected, "{code}");
}

#[test]
fn plain_calls() {
    for (call, expected) in [
        ("os.system('id')", "shell os.system"),
        ("os.popen('id').read()", "shell os.popen"),
        ("os.execvpe('sh', [], {})", "shell os.execvpe"),
        ("os.spawnlp(0, 'sh')", "shell os.spawnlp"),
        ("os.posix_spawn('sh', [], {})", "shell os.posix_spawn"),
        ("subprocess.run(['id'])", "shell subprocess.run"),
        ("subprocess.Popen('id', shell=True)", "shell subprocess.Popen"),
        ("pty.spawn('sh')", "shell pty.spawn"),
        ("await asyncio.create_subprocess_exec('id')", "shell asyncio.create_subprocess_exec"),
        ("asyncio.create_subprocess_shell('id')", "shell asyncio.create_subprocess_shell"),
        ("eval(x)", "dynamic-code eval"),
        ("exec('x = 1')", "dynamic-code exec"),
        ("compile(x, '', 'exec')", "dynamic-code compile"),
        ("builtins.eval(x)", "dynamic-code eval"),
        ("__import__(x)", "dynamic-import __import__"),
        ("importlib.import_module(x)", "dynamic-import importlib.import_module"),
        ("importlib.util.module_from_spec(x)", "dynamic-import importlib.util.module_from_spec"),
        ("runpy.run_path(x)", "dynamic-code runpy.run_path"),
        ("ctypes.CDLL(None)", "native-code ctypes.CDLL"),
        ("ctypes.cdll.LoadLibrary('x')", "native-code ctypes.cdll"),
        ("cffi.FFI()", "native-code cffi.FFI"),
        ("exec 'x'", "dynamic-code exec"),
    ] {
        let column = if call.starts_with("await") { 7 } else { 1 };
        check(call, &[&format!("1:{column} {expected}")]);
    }
}

#[test]
fn harmless_code_has_no_findings() {
    for code in [
        "",
        "import os, subprocess, ctypes, importlib\n",
        "os.path.join('a', 'b'); os.environ['x']; os.listdir('.')",
        "re.compile('x'); model.eval(); session.exec(q); self.run()",
        "try:\n  pass\nexcept subprocess.CalledProcessError:\n  pass\nx = subprocess.PIPE",
        "importlib.metadata.version('x'); importlib.resources.files('x')",
        "ctypes.c_int(3)",
        "def f(p: subprocess.Popen) -> 'subprocess.Popen': ...",
        "x: subprocess.Popen",
        "getattr(thing, name); getattr(os, 'getcwd')()",
        "print('os.system(1)')  # eval(x)",
        "from .os import system\nsystem(1)",
        "from . import os\nos.system(1)",
        "from mine import run\nrun(1)",
        "x['system']; sys.modules['json'].loads(x)",
        "globals()['x']",
        "match x:\n    case {'a': [b, *c]} if d: pass\n",
    ] {
        check(code, &[]);
    }
}

#[test]
fn names_are_followed_through_aliases() {
    for (code, expected) in [
        ("import os as o\no.system(1)", "2:1 shell os.system"),
        ("import os.path as p, os as o\no.system(1)", "2:1 shell os.system"),
        ("from subprocess import run as r\nr(1)", "2:1 shell subprocess.run"),
        ("from subprocess import (\n  run as r,\n)\nr(1)", "4:1 shell subprocess.run"),
        ("from os import *\nsystem(1)", "2:1 shell os.system"),
        (
            "from asyncio import subprocess as s\ns.create_subprocess_exec(1)",
            "2:1 shell subprocess.create_subprocess_exec",
        ),
        ("o = os\np = o\np.system(1)", "3:1 shell os.system"),
        ("c = b.system\nb = a\na = os", "1:5 shell os.system"),
        ("(o := os).system(1)", "1:1 shell os.system"),
        ("o = p = os\no.system(1)", "2:1 shell os.system"),
        ("a, b = os, 1\na.system(1)", "2:1 shell os.system"),
        ("def f(o=os): o.system(1)", "1:14 shell os.system"),
        ("if x:\n  import json as o\nelse:\n  import os as o\no.system(1)", "5:1 shell os.system"),
        ("shutil.os.system(1)", "1:1 shell os.system"),
        ("self.loop.subprocess_exec(p)", "1:1 shell subprocess_exec"),
        ("(os if x else y).system(1)", "1:1 shell os.system"),
        ("os . \\\n system(1)", "1:1 shell os.system"),
        ("𝐨𝐬.𝓼ystem(1)", "1:1 shell os.system"),
        ("os.system.__call__(1)", "1:1 shell os.system"),
        ("list(map(os.system, x))", "1:10 shell os.system"),
        ("f'{os.system(1)}'", "1:4 shell os.system"),
        ("x: os.system(1)", "1:4 shell os.system"),
        ("é = 1; os.system(é)", "1:8 shell os.system"),
        ("class A:\n  def f(self):\n    return lambda: os.system(1)", "3:20 shell os.system"),
    ] {
        check(code, &[expected]);
    }
}

#[test]
fn lookups_by_written_out_text() {
    for code in [
        "getattr(os, 'system')",
        "getattr(os, 'sys' + 'tem')(1)",
        "getattr(os, 'sys' 'tem')(1)",
        "getattr(os, ('\\x73\\171stem'))(1)",
        "getattr(os, r'system', None)(1)",
        "vars(os)['system'](1)",
        "os.__dict__['system'](1)",
        "os.__getattribute__('system')(1)",
        "sys.modules['os'].system(1)",
        "sys.modules.get('os').system(1)",
        "globals()['os'].system(1)",
        "builtins.getattr(os, 'system')(1)",
    ] {
        check(code, &["1:1 shell os.system"]);
    }
    check("f = getattr(os, 'system')\nf(1)", &["1:5 shell os.system", "2:1 shell os.system"]);
    check("__import__('os').system(1)", &["1:1 shell os.system", "1:1 dynamic-import __import__"]);
    check(
        "m = importlib.import_module('subprocess')\nm.run(1)",
        &["1:5 dynamic-import importlib.import_module", "2:1 shell subprocess.run"],
    );
    check("__builtins__['eval'](x)", &["1:1 dynamic-code eval"]);
    check("getattr(__builtins__, 'eval')(x)", &["1:1 dynamic-code eval"]);
}

#[test]
fn computed_names_in_watched_modules() {
    check("getattr(os, name)(1)", &["1:1 computed-name os.*"]);
    check("import os as o\ngetattr(o, 'metsys'[::-1])(1)", &["2:1 computed-name os.*"]);
    check("vars(subprocess)[x]", &["1:1 computed-name subprocess.*"]);
}

#[test]
fn what_is_no_python_is_a_finding_and_the_rest_is_scanned() {
    check("def f(:\n", &["1:7 syntax-error :"]);
    let findings = found("x = = 1\nos.system('id')\n!ls\n");
    assert!(findings[0].contains("syntax-error"), "{findings:?}");
    assert!(findings.contains(&"2:1 shell os.system".to_owned()), "{findings:?}");
    assert_eq!(findings.iter().filter(|finding| finding.contains("syntax-error")).count(), 1);
}

#[test]
fn long_code_is_scanned_as_far_as_the_limit() {
    let line = "x = 1\n";
    let code = format!("os.system(1)\n{}os.popen(1)\n", line.repeat(MAX_CODE_BYTES / line.len()));
    let findings = python(&code);
    let rules: Vec<_> = findings.iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, [Rule::Shell, Rule::NotScanned]);
    assert_eq!(findings[1].column, 1);
}

#[test]
fn no_more_findings_than_anybody_reads() {
    let findings = python(&"os.system(1)\n".repeat(MAX_FINDINGS + 5));
    assert_eq!(findings.len(), MAX_FINDINGS + 1);
    let last = findings.last().unwrap();
    assert_eq!((last.rule, last.line as usize), (Rule::NotScanned, MAX_FINDINGS + 1));
}

/// Deep enough that whatever recurses overflows; not all that is allowed, which takes an unoptimised parser seconds.
const DEEP_BYTES: usize = MAX_CODE_BYTES / 8;

#[test]
fn deep_code_overflows_nothing() {
    let deep = |open: &str, middle: &str, close: &str| {
        let times = DEEP_BYTES / (open.len() + close.len()) - 10;
        python(&format!("{}{middle}{}\nos.system(1)\n", open.repeat(times), close.repeat(times)))
    };
    // A stack as small as that of any thread.
    let scan = move || {
        for (open, middle, close) in [
            ("(", "1", ")"),
            ("[", "1", "]"),
            ("{1:", "1", "}"),
            ("f(", "1", ")"),
            ("-", "1", ""),
            ("not ", "1", ""),
            ("lambda:", "1", ""),
            ("x if y else ", "1", ""),
            ("x**", "1", ""),
            ("x.", "y", ""),
            ("", "f", "()"),
            ("", "f", "[0]"),
            ("a=", "os", ""),
            ("getattr(", "os", ",'x')"),
            ("(x or ", "os", ")"),
            ("f'{", "1", "}'"),
            ("(", "", ""),
            ("f\"{", "", ""),
            ("'''", "", ""),
            ("if x:\n ", "", ""),
        ] {
            let findings = deep(open, middle, close);
            assert!(findings.len() <= 4, "{open}: {} findings", findings.len());
        }
    };
    std::thread::Builder::new().stack_size(512 * 1024).spawn(scan).unwrap().join().unwrap();
}

#[test]
fn names_that_mean_each_other_end() {
    let code = "f = getattr\nf = vars\na = a.os\na = b\nb = a.system\n";
    let _ = python(&format!("{code}{}1{}", "f(".repeat(5000), ")".repeat(5000)));
    let circle: String = (0..3000).map(|n| format!("a{n} = a{}.os\n", (n + 1) % 3000)).collect();
    let _ = python(&circle);
}

#[test]
fn findings_are_fields_for_rules() {
    let mut context = Context::new();
    describe(&python("import os as o\no.system(1)\no.popen(1)\neval(1)"), &mut context);
    let list = |words: &[&str]| words.iter().copied().collect::<Value>();
    assert_eq!(context.get("findings"), Some(&list(&["dynamic-code", "shell"])));
    assert_eq!(context.get("finding_names"), Some(&list(&["eval", "os.popen", "os.system"])));
}

#[test]
fn findings_in_words_and_as_json() {
    let findings = python("os.system(1)");
    assert_eq!(findings[0].to_string(), "line 1, column 1: shell: `os.system` starts a program");
    let json = serde_json::to_value(&findings).unwrap();
    let expected =
        serde_json::json!([{"line": 1, "column": 1, "rule": "shell", "name": "os.system"}]);
    assert_eq!(json, expected);
}

/// Pieces that code is made of, so that generated text often is code.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "os",
        "system",
        "subprocess",
        "getattr",
        "vars",
        "eval",
        "import ",
        "from ",
        " as ",
        ".",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "'",
        "\"",
        "'''",
        "f'",
        "\\",
        "\n",
        "\n    ",
        ":",
        ",",
        "=",
        ":=",
        "lambda ",
        "def f",
        "class C",
        "if ",
        "else ",
        "for ",
        " in ",
        "x",
        "1",
        " ",
        "\t",
        "*",
        "@",
        "await ",
        "match ",
        "é",
        "𝐨",
        "\0",
        "\u{feff}",
        "\r\n",
        "#",
        "...",
        "->",
        "!",
        "`",
        "exec ",
        "print ",
        ">>",
    ]);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_scanned(code in prop_oneof![any::<String>(), pieces()]) {
        let findings = python(&code);
        prop_assert_eq!(&python(&code), &findings);
        prop_assert!(findings.is_sorted());
        let lines: Vec<&str> = code.split('\n').collect();
        for finding in &findings {
            let line = lines[finding.line as usize - 1];
            prop_assert!(finding.column as usize <= line.chars().count() + 1);
        }
    }

    /// Whatever the alias and wherever the call, it is found at its place.
    #[test]
    fn a_call_through_an_alias_is_found(
        alias in "[a-z][a-z0-9_]{0,8}x",
        before in 0..20usize,
        depth in 0..12usize,
        way in 0..5usize,
    ) {
        let (bind, call) = match way {
            0 => (format!("import os as {alias}"), format!("{alias}.system")),
            1 => (format!("from os import system as {alias}"), alias.clone()),
            2 => (format!("import os\n{alias} = os"), format!("{alias}.system")),
            3 => (format!("import os\n{alias} = os"), format!("getattr({alias}, 'system')")),
            _ => ("import os".to_owned(), "os.system".to_owned()),
        };
        let mut code = format!("{bind}\n{}", "y = [1, (2, 3)]\n".repeat(before));
        for level in 0..depth {
            code.push_str(&format!("{}def f{level}(a, *b, c=1):\n", "    ".repeat(level)));
        }
        let indent = "    ".repeat(depth);
        code.push_str(&format!("{indent}return {call}('id')\n"));
        let line = u32::try_from(code.lines().count()).unwrap();
        let column = u32::try_from(indent.len() + "return ".len() + 1).unwrap();
        let expected = Finding { line, column, rule: Rule::Shell, name: "os.system".to_owned() };
        prop_assert!(python(&code).contains(&expected), "{}\n{:?}", code, python(&code));
    }

    /// Text that is only written in strings and comments is not code.
    #[test]
    fn strings_and_comments_are_no_code(words in "[a-z .(]{0,30}") {
        prop_assert_eq!(python(&format!("x = 'os.system({words}'  # eval({words}\n")), vec![]);
    }
}
