//! How findings are shown.

use serde_json::{Value, json};

use crate::{
    command::Output,
    finding::{Finding, FindingState},
};

/// Prints findings, for people or as JSON.
pub fn print(findings: &[Finding], as_json: bool, output: &mut Output) {
    if as_json {
        output.line(format!("{:#}", to_json(findings)));
        return;
    }
    for finding in findings {
        let (mark, text, remedy) = parts(&finding.state);
        let separator = if text.is_empty() { "" } else { ": " };
        output.line(format!("{mark} {}{separator}{}", finding.point, indented(text, "  ")));
        if let Some(remedy) = remedy.filter(|remedy| !remedy.is_empty()) {
            output.line(format!("  → {}", indented(remedy, "    ")));
        }
    }
    output.line(summary(findings));
}

/// Whether `run` would start.
pub fn is_startable(findings: &[Finding]) -> bool {
    !findings.iter().any(|finding| matches!(finding.state, FindingState::Bad { .. }))
}

fn parts(state: &FindingState) -> (char, &str, Option<&str>) {
    match state {
        FindingState::Good { detail } => ('✓', detail, None),
        FindingState::Warning { problem, remedy } => ('!', problem, Some(remedy)),
        FindingState::Bad { problem, remedy } => ('✗', problem, Some(remedy)),
    }
}

/// Statements of several lines stay readable below their mark.
fn indented(text: &str, indent: &str) -> String {
    text.trim_end().replace('\n', &format!("\n{indent}"))
}

fn summary(findings: &[Finding]) -> String {
    let count = |mark| findings.iter().filter(|finding| parts(&finding.state).0 == mark).count();
    match (count('✗'), count('!')) {
        (0, 0) => "all in order".to_owned(),
        (0, warnings) => format!("ready to run, with {}", counted(warnings, "warning")),
        (problems, 0) => format!("{} to mend", counted(problems, "problem")),
        (problems, warnings) => {
            let problems = counted(problems, "problem");
            format!("{problems} and {} to mend", counted(warnings, "warning"))
        }
    }
}

fn counted(number: usize, word: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {word}{plural}")
}

fn to_json(findings: &[Finding]) -> Value {
    let points = findings.iter().map(|finding| match &finding.state {
        FindingState::Good { detail } => json!({ "point": finding.point, "state": "good", "detail": detail }),
        FindingState::Warning { problem, remedy } => {
            json!({ "point": finding.point, "state": "warning", "problem": problem, "remedy": remedy })
        }
        FindingState::Bad { problem, remedy } => {
            json!({ "point": finding.point, "state": "bad", "problem": problem, "remedy": remedy })
        }
    });
    json!({ "startable": is_startable(findings), "findings": points.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn printed(findings: &[Finding], as_json: bool) -> String {
        let captured = Captured::default();
        print(findings, as_json, &mut Output::new(captured.clone(), io::sink()));
        String::from_utf8(captured.0.lock().unwrap().clone()).unwrap()
    }

    fn findings() -> [Finding; 3] {
        let finding = |point: &str, state| Finding { point: point.to_owned(), state };
        [
            finding("store", FindingState::Good { detail: "MariaDB 10.11".to_owned() }),
            finding(
                "time zone",
                FindingState::Warning { problem: "8 h off".to_owned(), remedy: "set store.time_zone".to_owned() },
            ),
            finding(
                "index",
                FindingState::Bad {
                    problem: "is missing".to_owned(),
                    remedy: "CREATE INDEX i\n  ON t (a);".to_owned(),
                },
            ),
        ]
    }

    #[test]
    fn each_point_has_its_mark_and_its_remedy() {
        let expected = "✓ store: MariaDB 10.11\n! time zone: 8 h off\n  → set store.time_zone\n✗ index: is missing\n  \
                        → CREATE INDEX i\n      ON t (a);\n1 problem and 1 warning to mend\n";
        assert_eq!(printed(&findings(), false), expected);
        assert_eq!(printed(&[], false), "all in order\n");
    }

    #[test]
    fn json_says_the_same() {
        let json: Value = serde_json::from_str(&printed(&findings(), true)).unwrap();
        assert_eq!(json["startable"], false);
        assert_eq!(json["findings"][1]["state"], "warning");
        assert_eq!(json["findings"][2]["remedy"], "CREATE INDEX i\n  ON t (a);");
    }
}
