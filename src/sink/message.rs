//! From a bill to the neutral message that every kind of sink sends.

use std::{fmt, fmt::Write, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::{
    bill::{Bill, MessageIdForm},
    decision::Trouble,
    sink::{Address, AddressKey, template::Destination},
};

/// A message as every kind of sink gets it. Rendering it twice from the same row gives the same message, but for
/// `attempt`.
#[derive(Clone, PartialEq)]
pub struct Message {
    /// Stable over attempts, restarts and replicas: consumers drop duplicates by it.
    pub message_id: Arc<str>,
    pub bill_type: Arc<str>,
    pub bill_id: Arc<str>,
    /// Counts from 1.
    pub attempt: u32,
    /// Seconds since 1970-01-01 UTC.
    pub created_at_s: Option<u64>,
    pub content_type: Arc<str>,
    pub address: Address,
    /// The row's own headers, in their order. Reserved names are refused by the sink's `admit`.
    pub headers: Vec<(String, Value)>,
    pub body: Bytes,
}

/// The content type of a route that names none: the payload column is JSON in the default table.
pub const DEFAULT_CONTENT_TYPE: &str = "application/json";

/// The longest message id in bytes: what AMQP can carry. Longer ones are replaced by their digest.
const MAX_MESSAGE_ID: usize = 255;
/// What stands before a digest. No other id begins like this, not even that of a type of this name.
const DIGEST: &str = "sha256";

/// The message that a bill becomes: its next attempt, not yet admitted by any sink.
///
/// # Errors
/// The bill lacks a value that the destination needs (class `template`), or its headers are no JSON object (class
/// `invalid_headers`): the bill's fault, it will never work.
pub fn compose(
    bill: &Bill,
    form: &MessageIdForm,
    destination: &Destination,
    content_type: &Arc<str>,
) -> Result<Message, Trouble> {
    Ok(Message {
        message_id: message_id(bill, form),
        bill_type: bill.bill_type.as_str().into(),
        bill_id: bill.id.to_string().into(),
        attempt: bill.seen.attempts().saturating_add(1),
        created_at_s: bill.created_at_s,
        content_type: Arc::clone(content_type),
        address: destination.render(bill)?,
        headers: headers(bill.headers.as_deref())?,
        body: bill.payload.clone().unwrap_or_default(),
    })
}

/// The id by which consumers know the bill again. No two bills share one, unless the application's own column says so.
///
/// A bill whose key is NULL has no `{type}:{key}`; its id is `{type}::{id}`. Colons in parts are encoded, so that the
/// number of colons tells the two forms apart.
pub fn message_id(bill: &Bill, form: &MessageIdForm) -> Arc<str> {
    if let Some(own) = bill.message_id.as_deref().filter(|own| !own.is_empty()) {
        return if own.len() <= MAX_MESSAGE_ID { own.into() } else { digest(own) };
    }
    let mut id = String::with_capacity(64);
    match (form, &bill.key) {
        (MessageIdForm::TypeAndKey, Some(key)) => {
            push_encoded(&mut id, &bill.bill_type);
            id.push(':');
            push_encoded(&mut id, key);
        }
        (MessageIdForm::TypeAndKey, None) => {
            push_encoded(&mut id, &bill.bill_type);
            id.push_str("::");
            push_encoded(&mut id, &bill.id.to_string());
        }
        (MessageIdForm::TableAndId(table), _) => {
            push_encoded(&mut id, table);
            id.push(':');
            push_encoded(&mut id, &bill.id.to_string());
        }
    }
    // A digest's prefix belongs to digests: what would begin with it by chance becomes one.
    let looks_like_digest = id.strip_prefix(DIGEST).is_some_and(|rest| rest.starts_with(':'));
    if id.len() > MAX_MESSAGE_ID || looks_like_digest { digest(&id) } else { id.into() }
}

fn digest(id: &str) -> Arc<str> {
    let mut text = String::with_capacity(DIGEST.len() + 65);
    text.push_str(DIGEST);
    text.push(':');
    for byte in Sha256::digest(id) {
        push_hex(&mut text, byte);
    }
    text.into()
}

/// Percent-encodes `%`, `:`, control and non-ASCII bytes.
fn push_encoded(id: &mut String, part: &str) {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'%' | b':');
    if part.bytes().all(is_plain) {
        return id.push_str(part);
    }
    for byte in part.bytes() {
        if is_plain(byte) {
            id.push(char::from(byte));
        } else {
            // Upper case, as `rawurlencode` and its like in other languages have it.
            write!(id, "%{byte:02X}").expect("writing to a string cannot fail");
        }
    }
}

fn push_hex(text: &mut String, byte: u8) {
    write!(text, "{byte:02x}").expect("writing to a string cannot fail");
}

fn headers(text: Option<&str>) -> Result<Vec<(String, Value)>, Trouble> {
    let Some(text) = text else { return Ok(Vec::new()) };
    match serde_json::from_str::<Map<String, Value>>(text) {
        Ok(members) => Ok(members.into_iter().collect()),
        // serde's text may quote a value from the row; place and kind are enough to find it.
        Err(error) if error.is_data() => Err(Trouble::new("invalid_headers", "the headers are no JSON object")),
        Err(error) => {
            let place = format!("line {}, column {}", error.line(), error.column());
            Err(Trouble::new("invalid_headers", format!("the headers are no valid JSON ({place})")))
        }
    }
}

impl Message {
    /// The message as people and files get it. `keys` name the parts of the address; without them it is left out.
    pub fn shown<'a>(&'a self, keys: &'a [AddressKey]) -> Shown<'a> {
        Shown { message: self, keys }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("message_id", &self.message_id)
            .field("bill_type", &self.bill_type)
            .field("bill_id", &self.bill_id)
            .field("attempt", &self.attempt)
            .field("address", &self.address)
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// A whole message with its body, for `preview` and for the file sink: the only forms that show a payload.
///
/// Serialized, it is one JSON object; the body is a string (`body`), or `body_base64` where it is no UTF-8.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    message: &'a Message,
    keys: &'a [AddressKey],
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.message, f)
    }
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let message = self.message;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("message_id", &message.message_id)?;
        map.serialize_entry("type", &message.bill_type)?;
        map.serialize_entry("id", &message.bill_id)?;
        map.serialize_entry("attempt", &message.attempt)?;
        map.serialize_entry("created_at_s", &message.created_at_s)?;
        map.serialize_entry("content_type", &message.content_type)?;
        for (key, part) in self.keys.iter().zip(&message.address) {
            map.serialize_entry(key.name, &part.text)?;
        }
        map.serialize_entry("headers", &Headers(&message.headers))?;
        match std::str::from_utf8(&message.body) {
            Ok(text) => map.serialize_entry("body", text)?,
            Err(_) => map.serialize_entry("body_base64", &STANDARD.encode(&message.body))?,
        }
        map.end()
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.message;
        for (key, part) in self.keys.iter().zip(&message.address) {
            writeln!(f, "{:<13} {}", key.name, part.text)?;
        }
        writeln!(f, "message_id    {}", message.message_id)?;
        writeln!(f, "type          {}", message.bill_type)?;
        writeln!(f, "id            {}", message.bill_id)?;
        writeln!(f, "attempt       {}", message.attempt)?;
        if let Some(created_at_s) = message.created_at_s {
            writeln!(f, "created_at_s  {created_at_s}")?;
        }
        writeln!(f, "content_type  {}", message.content_type)?;
        for (name, value) in &message.headers {
            writeln!(f, "header        {name}: {value}")?;
        }
        let bytes = message.body.len();
        if let Ok(text) = std::str::from_utf8(&message.body) {
            write!(f, "body          {bytes} bytes\n\n{text}")
        } else {
            let encoded = STANDARD.encode(&message.body);
            write!(f, "body          {bytes} bytes, not UTF-8, shown in base64\n\n{encoded}")
        }
    }
}

struct Headers<'a>(&'a [(String, Value)]);

impl Serialize for Headers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        bill::{BillId, Seen},
        sink::template::Template,
    };

    fn bill(bill_type: &str, key: Option<&str>) -> Bill {
        Bill {
            id: BillId::Integer(7),
            bill_type: bill_type.to_owned(),
            key: key.map(str::to_owned),
            payload: Some(Bytes::from_static(br#"{"b":1,"a":12345678901234567890,"p":1.10}"#)),
            headers: None,
            message_id: None,
            created_at_s: Some(1_700_000_000),
            extra: Vec::new(),
            seen: Seen::default(),
        }
    }

    fn composed(bill: &Bill) -> Result<Message, Trouble> {
        let parse = |text| Template::parse(text, &[]).unwrap();
        let destination = Destination::new([parse("orders"), parse("{type}")]);
        compose(bill, &MessageIdForm::TypeAndKey, &destination, &DEFAULT_CONTENT_TYPE.into())
    }

    fn id_of(bill_type: &str, key: Option<&str>) -> String {
        message_id(&bill(bill_type, key), &MessageIdForm::TypeAndKey).as_ref().to_owned()
    }

    const KEYS: [AddressKey; 2] =
        [AddressKey { name: "exchange", default: Some("") }, AddressKey { name: "routing_key", default: None }];

    #[test]
    fn the_message_id_is_type_and_key_with_what_could_confuse_encoded() {
        for (bill_type, key, expected) in [
            ("order.paid", Some("1001"), "order.paid:1001"),
            ("a:b", Some("c"), "a%3Ab:c"),
            ("a", Some("b:c"), "a:b%3Ac"),
            ("50%", Some("x y"), "50%25:x y"),
            ("é", Some("\n"), "%C3%A9:%0A"),
            ("a", Some(""), "a:"),
            ("a", None, "a::7"),
        ] {
            assert_eq!(id_of(bill_type, key), expected);
        }
        let table = MessageIdForm::TableAndId("async_bill".into());
        assert_eq!(message_id(&bill("a", Some("b")), &table).as_ref(), "async_bill:7");
    }

    #[test]
    fn a_message_id_over_255_bytes_becomes_a_digest() {
        let (fits, over) = (id_of("a", Some(&"k".repeat(253))), id_of("a", Some(&"k".repeat(254))));
        assert_eq!(fits.len(), 255);
        assert!(over.starts_with("sha256:") && over.len() == 71, "{over}");
        let utf8mb4 = "𝄞".repeat(64);
        assert!(id_of(&utf8mb4, Some(&utf8mb4)).starts_with("sha256:"));
        let digest = over.strip_prefix("sha256:").unwrap();
        assert_ne!(id_of("sha256", Some(digest)), over, "a type named like the prefix cannot take a digest's place");
    }

    #[test]
    fn the_rows_own_message_id_comes_first_unless_it_is_empty() {
        let mut row = bill("a", Some("b"));
        for (own, expected) in [("own:1", "own:1"), ("", "a:b")] {
            row.message_id = Some(own.to_owned());
            assert_eq!(message_id(&row, &MessageIdForm::TypeAndKey).as_ref(), expected);
        }
        row.message_id = Some("x".repeat(256));
        assert!(message_id(&row, &MessageIdForm::TypeAndKey).starts_with("sha256:"));
    }

    proptest! {
        #[test]
        fn no_two_bills_share_a_message_id(
            one in ("[a:%é\u{1}]{0,4}|sha256", proptest::option::of("[a:%é\u{1}]{0,4}"), 0_i128..3),
            other in ("[a:%é\u{1}]{0,4}|sha256", proptest::option::of("[a:%é\u{1}]{0,4}"), 0_i128..3),
        ) {
            let id = |(bill_type, key, id): &(String, Option<String>, i128)| {
                let mut bill = bill(bill_type, key.as_deref());
                bill.id = BillId::Integer(*id);
                message_id(&bill, &MessageIdForm::TypeAndKey)
            };
            // Where there is a key, (type, key) is unique; where there is none, the id tells bills apart.
            let same = one.0 == other.0 && one.1 == other.1 && (one.1.is_some() || one.2 == other.2);
            prop_assert_eq!(id(&one) == id(&other), same, "{:?} {:?}", one, other);
            prop_assert!(id(&one).is_ascii() && id(&one).len() <= MAX_MESSAGE_ID);
        }
    }

    #[test]
    fn the_body_is_the_payload_byte_for_byte_and_null_is_empty() {
        let mut row = bill("order.paid", Some("1001"));
        assert_eq!(composed(&row).unwrap().body, row.payload.clone().unwrap());
        row.payload = None;
        assert!(composed(&row).unwrap().body.is_empty());
    }

    #[test]
    fn the_attempt_is_one_more_than_those_counted() {
        let mut row = bill("order.paid", Some("1001"));
        for (retry_count, attempt) in [(None, 1), (Some(0), 1), (Some(4), 5), (Some(-3), 1), (Some(i64::MAX), u32::MAX)]
        {
            row.seen.retry_count = retry_count;
            assert_eq!(composed(&row).unwrap().attempt, attempt);
        }
    }

    #[test]
    fn headers_keep_their_order_and_must_be_an_object() {
        let mut row = bill("order.paid", Some("1001"));
        row.headers = Some(r#"{"z":"1","a":2,"m":null}"#.to_owned());
        let names: Vec<_> = composed(&row).unwrap().headers.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["z", "a", "m"]);
        for text in ["[]", "1", "\"hunter2\"", "null", "", "{", r#"{"a":hunter2}"#] {
            row.headers = Some(text.to_owned());
            let trouble = composed(&row).unwrap_err();
            assert_eq!(trouble.class, "invalid_headers", "{text}");
            assert!(!trouble.error.contains("hunter2"), "{}", trouble.error);
        }
    }

    #[test]
    fn a_shown_message_holds_everything_and_debug_holds_no_payload() {
        let mut row = bill("order.paid", Some("1001"));
        row.headers = Some(r#"{"tenant":"t1"}"#.to_owned());
        let message = composed(&row).unwrap();
        insta::assert_snapshot!(message.shown(&KEYS).to_string(), @r#"
        exchange      orders
        routing_key   order.paid
        message_id    order.paid:1001
        type          order.paid
        id            7
        attempt       1
        created_at_s  1700000000
        content_type  application/json
        header        tenant: "t1"
        body          41 bytes

        {"b":1,"a":12345678901234567890,"p":1.10}
        "#);
        insta::assert_snapshot!(serde_json::to_string(&message.shown(&KEYS)).unwrap(), @r#"{"message_id":"order.paid:1001","type":"order.paid","id":"7","attempt":1,"created_at_s":1700000000,"content_type":"application/json","exchange":"orders","routing_key":"order.paid","headers":{"tenant":"t1"},"body":"{\"b\":1,\"a\":12345678901234567890,\"p\":1.10}"}"#);
        for text in [format!("{message:?}"), format!("{:?}", message.shown(&KEYS))] {
            assert!(!text.contains("1.10") && !text.contains("t1"), "{text}");
        }
    }

    #[test]
    fn a_body_that_is_no_text_is_shown_in_base64() {
        let mut row = bill("order.paid", Some("1001"));
        row.payload = Some(Bytes::from_static(b"\xff\x00"));
        let message = composed(&row).unwrap();
        assert!(serde_json::to_string(&message.shown(&[])).unwrap().contains(r#""body_base64":"/wA=""#));
        assert!(message.shown(&[]).to_string().ends_with("/wA="));
    }
}
