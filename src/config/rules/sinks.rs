//! The rules of `sinks`.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    config::{
        file::SinkSettings,
        problem::Problem,
        read_part,
        rules::{Report, checked_name},
        tree::{Node, Value},
    },
    sink::{file, rabbitmq},
    units::Size,
};

/// Sink names go into a column of the attempt log that is this wide.
const MAX_NAME: usize = 64;

/// All sinks; `None` where one of them cannot be read.
pub(in crate::config) fn read(root: &Node, problems: &mut Vec<Problem>) -> Option<BTreeMap<String, SinkSettings>> {
    let Value::Map(entries) = &root.get("sinks")?.value else { return None };
    let mut sinks = BTreeMap::new();
    let mut complete = true;
    for entry in entries {
        if let Err(error) = checked_name(&entry.key) {
            problems.push(Problem::at(&entry.place, format!("the sink's name {error}")));
        } else if entry.key.chars().count() > MAX_NAME {
            problems.push(Problem::at(&entry.place, format!("the sink's name is longer than {MAX_NAME} characters")));
        }
        match read_part::<SinkSettings>(Some(&entry.node)) {
            Some((node, settings)) => {
                check(&settings, &mut Report { node, problems });
                sinks.insert(entry.key.clone(), settings);
            }
            None => complete = false,
        }
    }
    complete.then_some(sinks)
}

fn check(settings: &SinkSettings, report: &mut Report<'_>) {
    match settings {
        SinkSettings::Rabbitmq(settings) => rabbitmq(settings, report),
        SinkSettings::File(settings) => file(settings, report),
    }
}

fn rabbitmq(settings: &rabbitmq::settings::Settings, report: &mut Report<'_>) {
    let before = report.problems.len();
    report.one_way_to_connect(&["host", "port", "user", "vhost"]);
    if let Some(tls) = settings.tls.as_ref().filter(|_| report.is_sound("tls")) {
        report.certificate_with_key(tls.cert.as_ref(), tls.key.as_ref());
    }
    if !report.has("url") && !report.has("host") {
        report.at(&[], "says no broker: give `url`, or `host` with `user` and `password`");
    }
    if report.problems.len() == before && report.node.is_sound() {
        // What is left is between the parts of the URL, which only the sink itself takes apart.
        if let Err(error) = settings.validate() {
            report.at(&["url"], error);
        }
    }
    report.within(&["confirm_timeout"], settings.confirm_timeout, Duration::from_secs(1), Duration::from_hours(1));
    report.within(&["connect_timeout"], settings.connect_timeout, Duration::from_millis(100), Duration::from_mins(5));
    report.within(&["heartbeat"], settings.heartbeat, Duration::from_secs(1), Duration::from_hours(1));
    if settings.heartbeat.0.subsec_nanos() != 0 {
        report.at(&["heartbeat"], "must be whole seconds, as AMQP counts it");
    }
    max_message(settings.max_message, report);
}

fn file(settings: &file::Settings, report: &mut Report<'_>) {
    if settings.path.as_os_str().is_empty() {
        report.at(&["path"], "is empty; write - for standard output");
    }
    max_message(settings.max_message, report);
}

fn max_message(size: Size, report: &mut Report<'_>) {
    if !(1..=512 << 20).contains(&size.0) {
        report.at(&["max_message"], "must be between 1B and 512MiB");
    }
}
