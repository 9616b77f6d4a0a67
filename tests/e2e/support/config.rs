//! The configuration of a test, from parts that a scenario replaces.

use std::collections::BTreeMap;

/// Keys and their values in YAML's flow form.
type Keys = BTreeMap<String, String>;

/// One store, the sink `rabbit` and the route `all`, unless a scenario says otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    store: Keys,
    sink: Keys,
    route: Keys,
    /// Routes that are asked before `all`.
    before: Vec<String>,
    top: Keys,
}

impl Config {
    pub(crate) fn new(store_url: &str, broker_url: &str, exchange: &str) -> Self {
        let keys = |pairs: &[(&str, String)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect::<Keys>()
        };
        Self {
            store: keys(&[("url", quoted(store_url)), ("poll", "{ interval: 50ms }".to_owned())]),
            sink: keys(&[("type", "rabbitmq".to_owned()), ("url", quoted(broker_url))]),
            route: keys(&[
                ("name", "all".to_owned()),
                ("match", quoted("*")),
                ("sink", "rabbit".to_owned()),
                ("to", format!("{{ exchange: {exchange}, routing_key: \"{{type}}\" }}")),
                ("done_on", "publish".to_owned()),
            ]),
            before: Vec::new(),
            top: keys(&[("log", "{ format: json, level: info }".to_owned())]),
        }
    }

    pub(crate) fn store(mut self, key: &str, value: &str) -> Self {
        self.store.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn without_store(mut self, key: &str) -> Self {
        self.store.remove(key);
        self
    }

    pub(crate) fn sink(mut self, key: &str, value: &str) -> Self {
        self.sink.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn without_sink(mut self, key: &str) -> Self {
        self.sink.remove(key);
        self
    }

    pub(crate) fn route(mut self, key: &str, value: &str) -> Self {
        self.route.insert(key.to_owned(), value.to_owned());
        self
    }

    /// A route that is asked before `all`, as a flow mapping.
    pub(crate) fn before(mut self, route: &str) -> Self {
        self.before.push(route.to_owned());
        self
    }

    pub(crate) fn top(mut self, key: &str, value: &str) -> Self {
        self.top.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn yaml(&self) -> String {
        let flow = |keys: &Keys| {
            let pairs: Vec<String> = keys.iter().map(|(key, value)| format!("{key}: {value}")).collect();
            format!("{{ {} }}", pairs.join(", "))
        };
        let mut lines = vec![format!("store: {}", flow(&self.store)), "sinks:".to_owned()];
        lines.push(format!("  rabbit: {}", flow(&self.sink)));
        lines.push("routes:".to_owned());
        lines.extend(self.before.iter().map(|route| format!("  - {route}")));
        lines.push(format!("  - {}", flow(&self.route)));
        lines.extend(self.top.iter().map(|(key, value)| format!("{key}: {value}")));
        lines.join("\n") + "\n"
    }
}

pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
