//! Templates over a bill: `{type}`, `{key}`, `{id}`, `{payload.path.to.member}` and the names of `columns.extra`.

use std::{borrow::Cow, cell::OnceCell, fmt, fmt::Write, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    bill::Bill,
    decision::Trouble,
    sink::{Address, AddressPart},
};

/// A parsed template. `{{` and `}}` stand for the braces themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// As it was written, for what is shown to people.
    source: Arc<str>,
    form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// The same text for every bill: rendering it copies nothing.
    Static(Arc<str>),
    Dynamic(Vec<Segment>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Type,
    Key,
    Id,
    /// Member names, or indices of arrays, from the payload's top.
    Payload(Vec<String>),
    /// A place in `Bill::extra`.
    Extra(usize, String),
}

impl Template {
    /// Parses `text`. `extra` are the names of `columns.extra` in their order; other names are refused.
    ///
    /// # Errors
    /// One sentence that says what is wrong and which names there are.
    pub fn parse(text: &str, extra: &[String]) -> Result<Self, String> {
        let mut segments = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            literal.push_str(before);
            if let Some(after) = brace.strip_prefix("{{").or_else(|| brace.strip_prefix("}}")) {
                literal.extend(brace.chars().next());
                rest = after;
            } else if let Some((name, after)) = brace.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
                if !literal.is_empty() {
                    segments.push(Segment::Literal(std::mem::take(&mut literal)));
                }
                segments.push(Segment::parse(name, extra)?);
                rest = after;
            } else {
                let lone = brace.chars().next().unwrap_or('{');
                return Err(format!("a single `{lone}`; write `{lone}{lone}` for the brace itself"));
            }
        }
        literal.push_str(rest);
        let form = if segments.is_empty() {
            Form::Static(literal.into())
        } else {
            if !literal.is_empty() {
                segments.push(Segment::Literal(literal));
            }
            Form::Dynamic(segments)
        };
        Ok(Self { source: text.into(), form })
    }

    /// The text for one bill.
    ///
    /// # Errors
    /// The bill lacks a value that the template needs (class `template`): the bill's fault.
    pub fn render(&self, bill: &Bill) -> Result<AddressPart, Trouble> {
        self.render_row(&Row::new(bill))
    }

    /// The text, where it is the same for every bill.
    pub fn as_static(&self) -> Option<&Arc<str>> {
        match &self.form {
            Form::Static(text) => Some(text),
            Form::Dynamic(_) => None,
        }
    }

    fn render_row(&self, row: &Row<'_>) -> Result<AddressPart, Trouble> {
        let segments = match &self.form {
            Form::Static(text) => return Ok(AddressPart { text: Arc::clone(text), from_row: false }),
            Form::Dynamic(segments) => segments,
        };
        let text = match segments.as_slice() {
            [Segment::Type] => Arc::from(row.bill.bill_type.as_str()),
            segments => {
                let mut text = String::with_capacity(64);
                for segment in segments {
                    segment.render(row, &mut text)?;
                }
                text.into()
            }
        };
        Ok(AddressPart { text, from_row: true })
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

impl Segment {
    fn parse(name: &str, extra: &[String]) -> Result<Self, String> {
        if let Some(path) = name.strip_prefix("payload.") {
            let members: Vec<String> = path.split('.').map(str::to_owned).collect();
            return if members.iter().any(String::is_empty) {
                Err(format!("`{{{name}}}` has an empty member name"))
            } else {
                Ok(Self::Payload(members))
            };
        }
        match name {
            "type" => Ok(Self::Type),
            "key" => Ok(Self::Key),
            "id" => Ok(Self::Id),
            _ => match extra.iter().position(|known| known == name) {
                Some(place) => Ok(Self::Extra(place, name.to_owned())),
                None => Err(format!("there is no `{{{name}}}`; there are {}", known_names(extra))),
            },
        }
    }

    fn render(&self, row: &Row<'_>, text: &mut String) -> Result<(), Trouble> {
        let bill = row.bill;
        match self {
            Self::Literal(literal) => text.push_str(literal),
            Self::Type => text.push_str(&bill.bill_type),
            Self::Key => text.push_str(bill.key.as_deref().ok_or_else(|| lacks("key", "the column is NULL"))?),
            Self::Id => write!(text, "{}", bill.id).map_err(|error| lacks("id", &error.to_string()))?,
            Self::Payload(path) => text.push_str(&row.member(path)?),
            Self::Extra(place, name) => {
                let value = bill.extra.get(*place).and_then(Option::as_deref);
                text.push_str(value.ok_or_else(|| lacks(name, "the column is NULL"))?);
            }
        }
        Ok(())
    }
}

fn known_names(extra: &[String]) -> String {
    let fixed = ["{type}", "{key}", "{id}", "{payload.member}"].map(str::to_owned);
    fixed.into_iter().chain(extra.iter().map(|name| format!("{{{name}}}"))).collect::<Vec<_>>().join(", ")
}

fn lacks(name: &str, why: &str) -> Trouble {
    Trouble::new("template", format!("the bill has no value for {{{name}}}: {why}"))
}

/// The parsed templates of a route's `to`, in the order of the kind's [`AddressKey`](crate::sink::AddressKey)s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination(Box<[Template]>);

impl Destination {
    pub fn new(templates: impl IntoIterator<Item = Template>) -> Self {
        Self(templates.into_iter().collect())
    }

    /// Where one bill goes. Its payload is parsed once at most, and only if a template asks for it.
    ///
    /// # Errors
    /// The bill lacks a value that a template needs (class `template`).
    pub fn render(&self, bill: &Bill) -> Result<Address, Trouble> {
        let row = Row::new(bill);
        self.0.iter().map(|template| template.render_row(&row)).collect()
    }

    /// What is known without a bill, for `check`: parts that depend on one are marked `from_row` and show their template.
    pub fn outline(&self) -> Address {
        let part = |template: &Template| AddressPart {
            text: template.as_static().map_or_else(|| Arc::clone(&template.source), Arc::clone),
            from_row: template.as_static().is_none(),
        };
        self.0.iter().map(part).collect()
    }
}

/// A bill under rendering, with its payload's top level once it was asked for.
struct Row<'a> {
    bill: &'a Bill,
    payload: OnceCell<Option<Node<'a>>>,
}

impl<'a> Row<'a> {
    fn new(bill: &'a Bill) -> Self {
        Self { bill, payload: OnceCell::new() }
    }

    /// The member at `path` as text; a number stands exactly as in the payload.
    fn member(&self, path: &[String]) -> Result<Cow<'a, str>, Trouble> {
        let fail = |why: &str| Err(lacks(&format!("payload.{}", path.join(".")), why));
        let Some(bytes) = self.bill.payload.as_deref() else { return fail("the payload is NULL") };
        let Some((first, inner)) = path.split_first() else { return fail("it names no member") };
        let top = self.payload.get_or_init(|| serde_json::from_slice(bytes).ok());
        let Some(top) = top else { return fail("the payload is no JSON object or array") };
        let mut found = top.get(first);
        for name in inner {
            let node = found.and_then(|raw| serde_json::from_str::<Node<'a>>(raw.get()).ok());
            found = node.and_then(|node| node.get(name));
        }
        let Some(raw) = found.map(RawValue::get) else { return fail("the payload has no such member") };
        match raw.as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw).map(Cow::Owned).or_else(|_| fail("its text is malformed")),
            Some(b'{' | b'[') => fail("it is an object or array, not a single value"),
            Some(b'n') => fail("it is null"),
            _ => Ok(Cow::Borrowed(raw)),
        }
    }
}

/// One level of a payload; what lies below is left as it stands.
enum Node<'a> {
    Object(Vec<(Cow<'a, str>, &'a RawValue)>),
    Array(Vec<&'a RawValue>),
}

impl<'a> Node<'a> {
    /// Of members that bear the same name the last one counts, as with most readers of JSON.
    fn get(&self, name: &str) -> Option<&'a RawValue> {
        match self {
            Self::Object(members) => members.iter().rev().find(|(member, _)| member == name).map(|(_, raw)| *raw),
            Self::Array(items) => name.parse::<usize>().ok().and_then(|index| items.get(index).copied()),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Node<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((Name(name), raw)) = map.next_entry()? {
            members.push((name, raw));
        }
        Ok(Node::Object(members))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(raw) = seq.next_element()? {
            items.push(raw);
        }
        Ok(Node::Array(items))
    }
}

/// A member's name, borrowed where it holds no escapes (which serde does not do for `Cow` by itself).
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Name(Cow::Owned(name.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::bill::{BillId, Seen};

    fn bill(payload: Option<&'static str>) -> Bill {
        Bill {
            id: BillId::Integer(7),
            bill_type: "order.paid".to_owned(),
            key: Some("1001".to_owned()),
            payload: payload.map(|text| Bytes::from_static(text.as_bytes())),
            headers: None,
            message_id: None,
            created_at_s: None,
            extra: vec![Some("eu".to_owned()), None],
            seen: Seen::default(),
        }
    }

    fn extra() -> Vec<String> {
        vec!["region".to_owned(), "tenant".to_owned()]
    }

    fn render(template: &str, payload: Option<&'static str>) -> Result<String, String> {
        let part = Template::parse(template, &extra())?.render(&bill(payload)).map_err(|trouble| trouble.error)?;
        Ok(part.text.as_ref().to_owned())
    }

    const PAYLOAD: &str = r#"{"b":1,"n":12345678901234567890,"p":1.10,"e":-1E+2,"s":"caf\u00e9 \"x\"","t":true,"z":null,
        "o":{"list":[{"x":"first"},{"x":"second"}],"o":{}},"dup":1,"dup":2,"k\u0065y":"k"}"#;

    #[test]
    fn every_kind_of_placeholder_is_filled() {
        for (template, expected) in [
            ("plain", "plain"),
            ("", ""),
            ("{type}", "order.paid"),
            ("{type}.{key}.{id}", "order.paid.1001.7"),
            ("{{{type}}}", "{order.paid}"),
            ("a{{b}}c", "a{b}c"),
            ("{region}/x", "eu/x"),
            ("{payload.n}", "12345678901234567890"),
            ("{payload.p}|{payload.e}", "1.10|-1E+2"),
            ("{payload.s}", "café \"x\""),
            ("{payload.t}", "true"),
            ("{payload.o.list.1.x}", "second"),
            ("{payload.dup}", "2"),
            ("{payload.key}", "k"),
        ] {
            assert_eq!(render(template, Some(PAYLOAD)).as_deref(), Ok(expected), "{template}");
        }
    }

    #[test]
    fn a_value_that_is_missing_null_or_no_single_value_is_the_bills_trouble() {
        for (template, payload, part) in [
            ("{tenant}", Some(PAYLOAD), "{tenant}: the column is NULL"),
            ("{payload.z}", Some(PAYLOAD), "{payload.z}: it is null"),
            ("{payload.o}", Some(PAYLOAD), "not a single value"),
            ("{payload.o.list}", Some(PAYLOAD), "not a single value"),
            ("{payload.o.list.2.x}", Some(PAYLOAD), "no such member"),
            ("{payload.b.c}", Some(PAYLOAD), "no such member"),
            ("{payload.missing}", Some(PAYLOAD), "no such member"),
            ("{payload.b}", None, "the payload is NULL"),
            ("{payload.b}", Some("hello"), "no JSON object"),
            ("{payload.b}", Some(r#"{"b":"#), "no JSON object"),
        ] {
            let error = render(template, payload).unwrap_err();
            assert!(error.contains(part), "{template}: {error}");
        }
        let trouble = Template::parse("{tenant}", &extra()).unwrap().render(&bill(None)).unwrap_err();
        assert_eq!(trouble.class, "template");
        let mut keyless = bill(None);
        keyless.key = None;
        assert!(Template::parse("{key}", &[]).unwrap().render(&keyless).is_err());
    }

    #[test]
    fn a_payload_never_appears_in_an_error() {
        let error = render("{payload.x}", Some(r#"{"secret":"hunter2"}"#)).unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn what_is_no_template_is_refused_with_the_names_there_are() {
        let error = Template::parse("{tpye}", &extra()).unwrap_err();
        assert_eq!(error, "there is no `{tpye}`; there are {type}, {key}, {id}, {payload.member}, {region}, {tenant}");
        for bad in ["{", "}", "a{b", "a}b", "{}", "{payload}", "{payload.}", "{payload.a..b}", "{ type }"] {
            assert!(Template::parse(bad, &extra()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_static_template_hands_out_the_same_text_without_copying_it() {
        let template = Template::parse("orders", &[]).unwrap();
        let (first, second) = (template.render(&bill(None)).unwrap(), template.render(&bill(None)).unwrap());
        assert!(Arc::ptr_eq(&first.text, &second.text));
        assert!(!first.from_row);
        assert!(Template::parse("x.{id}", &[]).unwrap().render(&bill(None)).unwrap().from_row);
    }

    #[test]
    fn an_outline_shows_what_is_known_without_a_bill() {
        let parse = |text| Template::parse(text, &[]).unwrap();
        let outline = Destination::new([parse("or{{ders"), parse("{type}.x")]).outline();
        let parts: Vec<_> = outline.iter().map(|part| (part.text.as_ref(), part.from_row)).collect();
        assert_eq!(parts, [("or{ders", false), ("{type}.x", true)]);
    }
}
