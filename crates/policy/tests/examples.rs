//! The worked documents of the guide: each is read, asked its cases, and valid by the published schema's field names.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use belljar_policy::document::{
    Cases, Chain, Document, FlowRules, Format, Refusal, extended, schema,
};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies")
}

fn load(name: &str) -> Document {
    let text = fs::read_to_string(directory().join(name)).unwrap();
    Document::parse(&text, Format::Yaml).unwrap_or_else(|refusal| panic!("{name}: {refusal}"))
}

fn chain(name: &str) -> Chain {
    extended(name, load(name), &mut |file: &str, _: &str| {
        Ok::<_, Refusal>((file.to_owned(), load(file)))
    })
    .unwrap()
}

#[test]
fn every_worked_document_answers_its_cases() {
    let mut documents = 0;
    for entry in fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        documents += 1;
        let name = path.file_name().unwrap().to_str().unwrap();
        let chain = chain(name);
        let text = fs::read_to_string(directory().join("cases").join(name)).unwrap();
        let cases = Cases::parse(&text, Format::Yaml)
            .unwrap_or_else(|refusal| panic!("cases of {name}: {refusal}"));
        let results = cases.run(&chain.policy(), &FlowRules::new(&chain.effective()));
        assert!(results.len() >= 4, "{name}");
        for result in results {
            assert!(result.passed, "{name}: {result:?}");
        }
    }
    assert_eq!(documents, 6);
}

#[test]
fn limits_above_are_not_raised_below() {
    assert_eq!(chain("team.yaml").effective().defaults.max_memory_mb, Some(4096));
}

#[test]
fn the_schema_knows_every_field_of_a_document() {
    let schema: serde_json::Value = serde_json::from_str(&schema()).unwrap();
    let documents = ["locked.yaml", "packages.yaml", "github-agent.yaml", "tools.yaml"];
    for document in documents.map(load) {
        let json = serde_json::to_value(&document).unwrap();
        for field in json.as_object().unwrap().keys() {
            assert!(schema["properties"][field].is_object(), "{field}");
        }
    }
    assert_eq!(schema["additionalProperties"], false);
}
