//! Routes: from what the file says, under `defaults`, to what the relay uses.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use crate::{
    config::{
        file::{DoneOn, Patterns, RouteOptions},
        problem::Problem,
        read_part,
        rules::checked_name,
        tree::{Node, Value},
        walk::alternatives,
    },
    policy::{AttemptLog, Pattern, Retry, Selector},
    sink::{
        self, AddressKey,
        template::{Destination, Template},
    },
};

/// The largest `retry.cap`: who waits longer does not retry, and a date far enough away is none that a database knows.
const LONGEST_CAP: Duration = Duration::from_hours(30 * 24);

/// A route as it is used.
#[derive(Clone, Debug)]
pub struct RouteSettings {
    pub name: String,
    pub selector: Selector,
    /// The name of a sink of the same configuration.
    pub sink: String,
    /// Where in the sink.
    pub destination: Destination,
    pub done_on: DoneOn,
    pub retry: Retry,
    pub attempt_log: AttemptLog,
    pub content_type: Option<String>,
}

/// Puts the values of `defaults` under every route that does not say otherwise; `retry` key by key.
pub(super) fn apply_defaults(root: &mut Node) {
    let Some(Value::Map(defaults)) = root.get("defaults").map(|node| node.value.clone()) else { return };
    let Value::Map(entries) = &mut root.value else { return };
    let routes = entries.iter_mut().find(|entry| entry.key == "routes").map(|entry| &mut entry.node.value);
    let Some(Value::List(routes)) = routes else { return };
    for route in routes {
        let Value::Map(options) = &mut route.value else { continue };
        for default in &defaults {
            match options.iter_mut().find(|option| option.key == default.key) {
                None => options.push(default.clone()),
                Some(option) if option.key == "retry" => {
                    let (Value::Map(own), Value::Map(below)) = (&mut option.node.value, &default.node.value) else {
                        continue;
                    };
                    let missing = below.iter().filter(|entry| !own.iter().any(|own| own.key == entry.key));
                    let missing: Vec<_> = missing.cloned().collect();
                    own.extend(missing);
                }
                Some(_) => {}
            }
        }
    }
}

/// What routes refer to.
struct Surroundings<'a> {
    /// The kind of each sink, by name; `None` where the sink's own mistake hides it.
    sinks: BTreeMap<&'a str, Option<&'a str>>,
    /// The names of `columns.extra`.
    extra: Vec<String>,
}

/// All routes; `None` where one of them cannot be read.
pub(super) fn resolve(
    root: &Node,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) -> Option<Vec<RouteSettings>> {
    let around = Surroundings::of(root);
    let Value::List(nodes) = &root.get("routes")?.value else { return None };
    let routes: Vec<Option<(&Node, RouteSettings)>> =
        nodes.iter().map(|node| read(node, &around, problems).map(|route| (node, route))).collect();
    warn_of_unused_sinks(root, nodes, warnings);
    let complete = routes.iter().all(Option::is_some);
    let routes: Vec<_> = routes.into_iter().flatten().collect();
    check_names(&routes, problems);
    check_shadows(&routes, problems);
    complete.then(|| routes.into_iter().map(|(_, route)| route).collect())
}

impl<'a> Surroundings<'a> {
    fn of(root: &'a Node) -> Self {
        let mut sinks = BTreeMap::new();
        if let Some(Value::Map(entries)) = root.get("sinks").map(|node| &node.value) {
            sinks.extend(entries.iter().map(|entry| (entry.key.as_str(), text(entry.node.get("type")))));
        }
        let extra = match &root.nearest(&["store", "columns", "extra"]).value {
            Value::Map(entries) if root.get("store").and_then(|store| store.get("columns")?.get("extra")).is_some() => {
                entries.iter().map(|entry| entry.key.clone()).collect()
            }
            _ => Vec::new(),
        };
        Self { sinks, extra }
    }
}

fn text(node: Option<&Node>) -> Option<&str> {
    match node.map(|node| &node.value) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// One route; what is wrong with it is reported.
fn read(node: &Node, around: &Surroundings<'_>, problems: &mut Vec<Problem>) -> Option<RouteSettings> {
    let (_, options) = read_part::<RouteOptions>(Some(node))?;
    let at = |key: &str| &node.nearest(&[key]).place;
    for (key, advice) in [("match", ""), ("sink", ""), ("done_on", ", here or in `defaults`: publish")] {
        if node.get(key).is_none() {
            problems.push(Problem::at(&node.place, format!("the key `{key}` is missing{advice}")));
        }
    }
    let include = patterns("match", options.include.as_ref(), node, problems);
    let except = patterns("except", options.except.as_ref(), node, problems);
    if !include.is_empty() && include.iter().all(|own| except.iter().any(|except| except.matches(own.as_str()))) {
        problems.push(Problem::at(at("except"), "leaves nothing of what `match` takes"));
    }
    let retry = Retry::from(options.retry);
    if retry.base.is_zero() {
        problems.push(Problem::at(&node.nearest(&["retry", "base"]).place, "must be longer than 0"));
    }
    if retry.cap > LONGEST_CAP {
        problems.push(Problem::at(&node.nearest(&["retry", "cap"]).place, "is longer than 30d, the longest wait"));
    }
    if retry.base > retry.cap && node.nearest(&["retry"]).is_sound() {
        problems.push(Problem::at(&node.nearest(&["retry", "cap"]).place, "is shorter than `base`"));
    }
    if options.content_type.as_deref().is_some_and(|content_type| !is_content_type(content_type)) {
        problems.push(Problem::at(at("content_type"), "must be a media type, such as application/json"));
    }
    let destination = options.sink.as_ref().and_then(|_| destination(node, &options, around, problems));
    let name = options.name.or_else(|| include.first().map(|pattern| pattern.as_str().to_owned()))?;
    if let Err(error) = checked_name(&name) {
        problems.push(Problem::at(at("name"), error));
    }
    Some(RouteSettings {
        name,
        selector: Selector { include, except },
        sink: options.sink?,
        destination: destination?,
        done_on: options.done_on?,
        retry,
        attempt_log: options.attempt_log,
        content_type: options.content_type,
    })
}

fn patterns(key: &str, patterns: Option<&Patterns>, node: &Node, problems: &mut Vec<Problem>) -> Vec<Pattern> {
    let Some(patterns) = patterns.map(Patterns::values) else { return Vec::new() };
    let place = &node.nearest(&[key]).place;
    if patterns.is_empty() && key == "match" {
        problems.push(Problem::at(place, "is an empty list; \"*\" takes every type"));
    }
    if patterns.iter().any(String::is_empty) {
        problems.push(Problem::at(place, "holds an empty pattern; \"*\" takes every type"));
    }
    patterns.iter().map(Pattern::new).collect()
}

/// The route's templates in the order of its sink's address keys.
fn destination(
    node: &Node,
    options: &RouteOptions,
    around: &Surroundings<'_>,
    problems: &mut Vec<Problem>,
) -> Option<Destination> {
    let sink_node = node.get("sink")?;
    let Some(kind) = around.sinks.get(options.sink.as_deref()?) else {
        let defined = alternatives(options.sink.as_deref()?, around.sinks.keys().copied().collect());
        problems.push(Problem::at(&sink_node.place, format!("{} is no sink; {defined}", sink_node.shown())));
        return None;
    };
    let keys = address_keys((*kind)?)?;
    let to = node.nearest(&["to"]);
    for name in options.to.keys().filter(|name| !keys.iter().any(|key| key.name == name.as_str())) {
        let names: Vec<&str> = keys.iter().map(|key| key.name).collect();
        let message = if names.is_empty() {
            "no such key; this kind of sink takes no address".to_owned()
        } else {
            format!("no such key; {}", alternatives(name, names))
        };
        problems.push(Problem::at(&to.nearest(&[name]).place, message));
    }
    let templates: Vec<Option<Template>> =
        keys.iter().map(|key| template(key, to, options, around, problems)).collect();
    templates.into_iter().collect::<Option<Vec<_>>>().map(Destination::new)
}

fn template(
    key: &AddressKey,
    to: &Node,
    options: &RouteOptions,
    around: &Surroundings<'_>,
    problems: &mut Vec<Problem>,
) -> Option<Template> {
    let Some(text) = options.to.get(key.name).map(String::as_str).or(key.default) else {
        if !to.nearest(&[key.name]).is_sound() {
            return None;
        }
        problems.push(Problem::at(&to.place, format!("the key `to.{}` is missing", key.name)));
        return None;
    };
    let parsed = Template::parse(text, &around.extra);
    parsed.map_err(|error| problems.push(Problem::at(&to.nearest(&[key.name]).place, error))).ok()
}

/// `None` for a kind that does not exist, which is reported where the sink stands.
fn address_keys(kind: &str) -> Option<&'static [AddressKey]> {
    match kind {
        "rabbitmq" => Some(sink::rabbitmq::ADDRESS_KEYS),
        "file" => Some(sink::file::ADDRESS_KEYS),
        _ => None,
    }
}

fn is_content_type(text: &str) -> bool {
    let is_clean = text.len() <= 255 && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let parts = text.split_once('/');
    is_clean && parts.is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty() && !kind.contains(' '))
}

fn check_names(routes: &[(&Node, RouteSettings)], problems: &mut Vec<Problem>) {
    let mut taken: HashMap<&str, &Node> = HashMap::new();
    for (node, route) in routes {
        if let Some(first) = taken.insert(&route.name, node) {
            let place = &node.get("name").unwrap_or(node).place;
            let message =
                format!("has the same name as the route on line {}; give it a `name` of its own", first.place.line);
            problems.push(Problem::at(place, message));
        }
    }
}

/// A route that can never take a bill, because an earlier one takes all its types, is a mistake in the order.
fn check_shadows(routes: &[(&Node, RouteSettings)], problems: &mut Vec<Problem>) {
    for (index, (node, route)) in routes.iter().enumerate() {
        let earlier = routes.iter().take(index).find(|(_, earlier)| covers(&earlier.selector, &route.selector));
        if let Some((earlier, _)) = earlier {
            let message =
                format!("never takes a bill: the route on line {} takes all its types before", earlier.place.line);
            problems.push(Problem::at(&node.nearest(&["match"]).place, message));
        }
    }
}

/// Whether `wide` takes every type that `narrow` takes. A star of the one is only ever matched by a star of the other, so
/// that matching the pattern's own text answers it. May say no where several patterns together would cover one.
fn covers(wide: &Selector, narrow: &Selector) -> bool {
    let within = |patterns: &[Pattern], pattern: &Pattern| patterns.iter().any(|wide| wide.matches(pattern.as_str()));
    !narrow.include.is_empty()
        && narrow.include.iter().all(|pattern| within(&wide.include, pattern))
        && wide.except.iter().all(|except| within(&narrow.except, except))
}

fn warn_of_unused_sinks(root: &Node, routes: &[Node], warnings: &mut Vec<Problem>) {
    let Some(Value::Map(sinks)) = root.get("sinks").map(|node| &node.value) else { return };
    for sink in sinks {
        if !routes.iter().any(|route| text(route.get("sink")) == Some(&sink.key)) {
            warnings.push(Problem::at(&sink.place, "no route uses this sink"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(include: &[&str], except: &[&str]) -> Selector {
        let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::new(*text)).collect();
        Selector { include: patterns(include), except: patterns(except) }
    }

    #[test]
    fn a_route_covers_another_if_no_type_is_left_over() {
        for (wide, narrow, expected) in [
            (selector(&["*"], &[]), selector(&["order.*"], &[]), true),
            (selector(&["order.*"], &[]), selector(&["order.paid*"], &[]), true),
            (selector(&["order.*"], &[]), selector(&["*.paid"], &[]), false),
            (selector(&["a*b*c"], &[]), selector(&["a*c"], &[]), false),
            (selector(&["*"], &["sms.*"]), selector(&["sms.send"], &[]), false),
            (selector(&["*"], &["sms.*"]), selector(&["order.*"], &[]), false),
            (selector(&["*"], &["sms.*"]), selector(&["*"], &["sms.*", "x"]), true),
            (selector(&["a.*", "b.*"], &[]), selector(&["b.1", "a.1"], &[]), true),
        ] {
            assert_eq!(covers(&wide, &narrow), expected, "{wide:?} {narrow:?}");
        }
    }
}
