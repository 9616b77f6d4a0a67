//! `${NAME}` in the texts of the configuration. Runs after the YAML is parsed, so that no value can change the structure.

use crate::config::{
    Environment,
    problem::Problem,
    tree::{Expanded, Node, Value},
};

/// Puts the environment's values into every text below `node`; keys stay as they are. `$${` stands for `${`.
pub(super) fn expand(node: &mut Node, env: &Environment<'_>, problems: &mut Vec<Problem>) {
    match &mut node.value {
        Value::Text(text) => match substitute(text, env) {
            Ok((expanded, how)) => {
                *text = expanded;
                node.expanded = how;
            }
            Err(messages) => {
                node.broken = true;
                problems.extend(messages.into_iter().map(|message| Problem::at(&node.place, message)));
            }
        },
        Value::List(items) => items.iter_mut().for_each(|item| expand(item, env, problems)),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| expand(&mut entry.node, env, problems)),
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) => {}
    }
}

fn substitute(text: &str, env: &Environment<'_>) -> Result<(String, Expanded), Vec<String>> {
    let mut result = String::with_capacity(text.len());
    let mut problems = Vec::new();
    let mut how = Expanded::No;
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, from_dollar) = rest.split_at(start);
        if let Some(before) = before.strip_suffix('$') {
            result.push_str(before);
            result.push_str("${");
            rest = from_dollar.get(2..).unwrap_or_default();
            continue;
        }
        result.push_str(before);
        let Some((name, after)) = from_dollar.get(2..).and_then(|inside| inside.split_once('}')) else {
            problems.push("`${` without its `}`; write `$${` for the characters themselves".to_owned());
            break;
        };
        rest = after;
        if !is_name(name) {
            // The name is not shown: in a password that holds `${` it is no name.
            problems.push(
                "`${…}` takes the name of an environment variable (letters, digits, _) and nothing else; \
                 write `$${` for the characters themselves"
                    .to_owned(),
            );
            continue;
        }
        how = if text.len() == name.len() + "${}".len() { Expanded::Whole } else { Expanded::Partly };
        match env(name) {
            Some(value) => result.push_str(&value),
            None => problems.push(format!("the environment variable {name} is not set")),
        }
    }
    result.push_str(rest);
    if problems.is_empty() { Ok((result, how)) } else { Err(problems) }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        [("A", "1"), ("B", "${A}"), ("EMPTY", "")].iter().find(|(key, _)| *key == name).map(|(_, v)| (*v).to_owned())
    }

    #[test]
    fn variables_are_put_in_once_and_their_values_are_not_read_again() {
        for (text, expected, how) in [
            ("plain $HOME $5 {a}", "plain $HOME $5 {a}", Expanded::No),
            ("${A}", "1", Expanded::Whole),
            ("x${A}y${A}", "x1y1", Expanded::Partly),
            ("${A}${A}", "11", Expanded::Partly),
            ("${EMPTY}${A}", "1", Expanded::Partly),
            ("${B}", "${A}", Expanded::Whole),
            ("$${A}", "${A}", Expanded::No),
            ("$$${A}", "$${A}", Expanded::No),
            ("${EMPTY}", "", Expanded::Whole),
            ("é${A}", "é1", Expanded::Partly),
        ] {
            assert_eq!(substitute(text, &env), Ok((expected.to_owned(), how)), "{text}");
        }
    }

    #[test]
    fn a_mistake_is_named_and_a_text_that_is_no_name_is_not_repeated() {
        for (text, expected) in [
            ("${MISSING} ${ALSO}", vec!["MISSING is not set", "ALSO is not set"]),
            ("${A", vec!["without its `}`"]),
            ("${A:-default} ${MISSING}", vec!["takes the name", "MISSING"]),
            ("pa${ss word}", vec!["takes the name"]),
        ] {
            let problems = substitute(text, &env).unwrap_err();
            assert_eq!(problems.len(), expected.len(), "{text}");
            for (problem, part) in problems.iter().zip(expected) {
                assert!(problem.contains(part) && !problem.contains("ss word"), "{problem}");
            }
        }
    }
}
