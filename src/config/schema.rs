//! The JSON Schema of the configuration, made from the types that read it.

use std::sync::LazyLock;

use schemars::{Schema, generate::SchemaSettings, transform::transform_subschemas};
use serde_json::Value;

use crate::config::file::File;

/// A name, not an address: the schema comes out of the binary that it is true for.
const ID: &str = "urn:outbill:configuration";

/// The schema that files are checked against, and that `outbill config schema` prints.
pub fn schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        let settings = SchemaSettings::draft2020_12()
            // Without references the schema is a plain tree, which the walker and people can follow.
            .with(|settings| settings.inline_subschemas = true)
            .with_transform(tidy);
        let mut schema = settings.into_generator().into_root_schema_for::<File>();
        schema.insert("$id".to_owned(), ID.into());
        schema.insert("title".to_owned(), "Outbill's configuration".into());
        heading_first(schema.to_value())
    });
    &SCHEMA
}

/// What the whole is, before its two hundred keys.
fn heading_first(schema: Value) -> Value {
    let Value::Object(mut body) = schema else { return schema };
    let mut ordered = serde_json::Map::new();
    for key in ["$schema", "$id", "title", "description"] {
        ordered.extend(body.shift_remove(key).map(|value| (key.to_owned(), value)));
    }
    ordered.extend(body);
    ordered.into()
}

/// Takes out `null`: a key that has nothing to say is left out. Takes out the line breaks that only the doc comments'
/// width made.
fn tidy(schema: &mut Schema) {
    transform_subschemas(&mut tidy, schema);
    let Some(object) = schema.as_object_mut() else { return };
    if object.get("default").is_some_and(Value::is_null) {
        object.remove("default");
    }
    if let Some(Value::String(description)) = object.get_mut("description") {
        *description = description.replace('\n', " ");
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    let Some(Value::Array(branches)) = object.get_mut("anyOf") else { return };
    branches.retain(|branch| branch.get("type").is_none_or(|kind| kind != "null"));
    if let [only] = branches.as_mut_slice() {
        let only = only.take();
        object.remove("anyOf");
        if let Value::Object(only) = only {
            for (key, value) in only {
                object.entry(key).or_insert(value);
            }
        }
    }
}
