//! A message in AMQP's terms: its properties, and what the protocol and the broker cannot carry.

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldArray, FieldTable, ShortString},
};
use serde_json::Value;

use crate::{decision::Trouble, sink::Message};

/// The frame size we ask for: RabbitMQ's default. A content header, with all its headers, must fit into one frame.
pub(super) const FRAME_MAX: u32 = 131_072;

/// Bytes of a frame around its payload: type, channel, size, end.
const FRAME_OVERHEAD: usize = 8;
/// The longest text of a routing key, an exchange, a property or a header's name.
const MAX_SHORT: usize = 255;
/// Survives a restart of the broker, in a durable queue.
const PERSISTENT: u8 = 2;
const APP_ID: &str = "outbill";

/// How often the bill has been tried, this attempt included.
pub(super) const ATTEMPT_HEADER: &str = "outbill-attempt";
/// The bill's row. With the attempt it names one publish, which the message id need not do.
pub(super) const ID_HEADER: &str = "outbill-id";

/// Headers that no row may set. `CC` and `BCC` would send copies to any queue; the broker spells them like this only.
const RESERVED: [&str; 7] =
    ["CC", "BCC", "x-death", "x-received-from", "x-delivery-count", "x-first-death-queue", "x-last-death-queue"];
/// Beginnings of header names that no row may use, in any case of letters: ours, and the broker's own records of
/// dead-lettering and shovelling, by which it notices circles.
const RESERVED_PREFIXES: [&str; 4] = ["outbill-", "x-first-death-", "x-last-death-", "x-shovelled"];

/// Refuses what could never be sent.
pub(super) fn admit(message: &Message, max_message: u64) -> Result<(), Trouble> {
    let body = u64::try_from(message.body.len()).unwrap_or(u64::MAX);
    if body > max_message {
        let text = format!("the payload has {body} bytes; the sink's max_message is {max_message}");
        return Err(Trouble::new("too_large", text));
    }
    let address = message.address.iter().zip(["exchange", "routing key"]);
    let properties =
        [("message id", &message.message_id), ("type", &message.bill_type), ("content type", &message.content_type)];
    for (what, text) in address
        .map(|(part, what)| (what, part.text.as_ref()))
        .chain(properties.map(|(what, text)| (what, text.as_ref())))
    {
        if text.len() > MAX_SHORT {
            return Err(too_long(what, text.len()));
        }
    }
    for (name, value) in &message.headers {
        let is_reserved = RESERVED.contains(&name.as_str())
            || RESERVED_PREFIXES
                .iter()
                .any(|prefix| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)));
        if is_reserved {
            let shown: String = name.chars().take(80).collect();
            return Err(Trouble::new("reserved_header", format!("the row's headers may not set {shown:?}")));
        }
        check_names(name, value)?;
    }
    fits_frame(message, FRAME_MAX)
}

/// Whether the content header fits into one frame of `frame_max` bytes: a larger one would cost the whole connection.
pub(super) fn fits_frame(message: &Message, frame_max: u32) -> Result<(), Trouble> {
    let room = usize::try_from(frame_max).unwrap_or(usize::MAX) - FRAME_OVERHEAD;
    let needed = header_len(message);
    if needed <= room {
        return Ok(());
    }
    let text = format!("headers and properties take {needed} bytes; the broker's frames hold {room}");
    Err(Trouble::new("headers_too_large", text))
}

fn check_names(name: &str, value: &Value) -> Result<(), Trouble> {
    if name.len() > MAX_SHORT {
        return Err(too_long("name of a header", name.len()));
    }
    match value {
        Value::Object(members) => members.iter().try_for_each(|(name, value)| check_names(name, value)),
        Value::Array(items) => items.iter().try_for_each(|item| check_names("", item)),
        _ => Ok(()),
    }
}

fn too_long(what: &str, bytes: usize) -> Trouble {
    Trouble::new("too_long", format!("the {what} has {bytes} bytes; AMQP carries {MAX_SHORT}"))
}

/// Bytes of the content header's payload: class, weight, body size, flags, properties.
fn header_len(message: &Message) -> usize {
    let short = |text: &str| 1 + text.len();
    let own = [&*message.message_id, &message.bill_type, &message.content_type, APP_ID].map(short);
    let table = 4 + (1 + ATTEMPT_HEADER.len() + 9) + (1 + ID_HEADER.len() + 5 + message.bill_id.len());
    let rows: usize = message.headers.iter().map(|(name, value)| short(name) + value_len(value)).sum();
    let delivery_mode_and_timestamp = 9;
    14 + own.iter().sum::<usize>() + table + rows + delivery_mode_and_timestamp
}

/// Bytes of a header's value with its type.
fn value_len(value: &Value) -> usize {
    match value {
        Value::Null => 1,
        Value::Bool(_) => 2,
        Value::Number(number) if number.is_u64() && !number.is_i64() => 5 + 20,
        Value::Number(_) => 9,
        Value::String(text) => 5 + text.len(),
        Value::Array(items) => 5 + items.iter().map(value_len).sum::<usize>(),
        Value::Object(members) => {
            5 + members.iter().map(|(name, value)| 1 + name.len() + value_len(value)).sum::<usize>()
        }
    }
}

/// What is sent besides the parts of the message, as `preview` shows it.
pub(super) fn additions(message: &Message) -> Vec<(&'static str, Value)> {
    vec![
        ("mandatory", true.into()),
        ("delivery_mode", PERSISTENT.into()),
        ("app_id", APP_ID.into()),
        (ATTEMPT_HEADER, message.attempt.into()),
        (ID_HEADER, message.bill_id.as_ref().into()),
    ]
}

/// The properties, with the row's headers moved out of `message`.
///
/// # Errors
/// A text is too long for AMQP: the message was not admitted.
pub(super) fn properties(message: &mut Message) -> Result<BasicProperties, Trouble> {
    let mut headers = FieldTable::default();
    for (name, value) in std::mem::take(&mut message.headers) {
        headers.insert(short_owned("name of a header", name)?, to_amqp(value)?);
    }
    headers.insert(short("header", ATTEMPT_HEADER)?, AMQPValue::LongLongInt(message.attempt.into()));
    headers.insert(short("header", ID_HEADER)?, AMQPValue::LongString(message.bill_id.as_bytes().into()));
    let properties = BasicProperties::default()
        .with_content_type(short("content type", &message.content_type)?)
        .with_headers(headers)
        .with_delivery_mode(PERSISTENT)
        .with_message_id(short("message id", &message.message_id)?)
        .with_type(short("type", &message.bill_type)?)
        .with_app_id(short("app id", APP_ID)?);
    Ok(match message.created_at_s {
        Some(created_at_s) => properties.with_timestamp(created_at_s),
        None => properties,
    })
}

/// A text of AMQP's short kind.
pub(super) fn short(what: &str, text: &str) -> Result<ShortString, Trouble> {
    short_owned(what, text.to_owned())
}

fn short_owned(what: &str, text: String) -> Result<ShortString, Trouble> {
    let bytes = text.len();
    ShortString::try_new(text).map_err(|_too_long| too_long(what, bytes))
}

/// Integers beyond 64 signed bits go as their digits: AMQP tables have no type that every client reads for them.
fn to_amqp(value: Value) -> Result<AMQPValue, Trouble> {
    Ok(match value {
        Value::Null => AMQPValue::Void,
        Value::Bool(truth) => AMQPValue::Boolean(truth),
        Value::Number(number) => match (number.as_i64(), number.is_u64(), number.as_f64()) {
            (Some(integer), ..) => AMQPValue::LongLongInt(integer),
            (None, false, Some(float)) => AMQPValue::Double(float),
            _ => AMQPValue::LongString(number.to_string().into()),
        },
        Value::String(text) => AMQPValue::LongString(text.into()),
        Value::Array(items) => {
            AMQPValue::FieldArray(FieldArray::from(items.into_iter().map(to_amqp).collect::<Result<Vec<_>, _>>()?))
        }
        Value::Object(members) => {
            let mut table = FieldTable::default();
            for (name, value) in members {
                table.insert(short_owned("name of a header", name)?, to_amqp(value)?);
            }
            AMQPValue::FieldTable(table)
        }
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;
    use crate::sink::AddressPart;

    fn message(headers: &Value) -> Message {
        let part = |text: &str| AddressPart { text: text.into(), from_row: false };
        Message {
            message_id: "order.paid:1001".into(),
            bill_type: "order.paid".into(),
            bill_id: "7".into(),
            attempt: 1,
            created_at_s: Some(1_700_000_000),
            content_type: "application/json".into(),
            address: [part("orders"), part("order.paid")].into(),
            headers: headers.as_object().unwrap().clone().into_iter().collect(),
            body: Bytes::from_static(b"{}"),
        }
    }

    /// The content header's length by AMQP's grammar, from what is sent, independently of [`header_len`].
    fn encoded_len(message: &Message) -> usize {
        let properties = properties(&mut message.clone()).unwrap();
        let texts = [properties.content_type(), properties.message_id(), properties.kind(), properties.app_id()];
        let texts: usize = texts.map(|text| 1 + text.as_ref().unwrap().as_str().len()).iter().sum();
        let class_weight_size_flags = 2 + 2 + 8 + 2;
        class_weight_size_flags + texts + 1 + 8 + table_len(properties.headers().as_ref().unwrap())
    }

    fn table_len(table: &FieldTable) -> usize {
        4 + table.into_iter().map(|(name, field)| 1 + name.as_str().len() + field_len(field)).sum::<usize>()
    }

    fn field_len(field: &AMQPValue) -> usize {
        1 + match field {
            AMQPValue::Void => 0,
            AMQPValue::Boolean(_) => 1,
            AMQPValue::LongLongInt(_) | AMQPValue::Double(_) => 8,
            AMQPValue::LongString(text) => 4 + text.len(),
            AMQPValue::FieldArray(items) => 4 + items.as_slice().iter().map(field_len).sum::<usize>(),
            AMQPValue::FieldTable(members) => table_len(members),
            other => panic!("unexpected {other:?}"),
        }
    }

    #[test]
    fn the_length_of_the_content_header_is_computed_exactly() {
        for headers in [
            json!({}),
            json!({ "tenant": "é", "n": 1, "f": 1.5, "t": true, "z": null, "big": u64::MAX }),
            json!({ "nested": { "list": [1, "two", [3], { "four": 4 }] } }),
        ] {
            let message = message(&headers);
            assert_eq!(header_len(&message), encoded_len(&message), "{headers}");
        }
    }

    #[test]
    fn headers_become_amqps_own_types() {
        let mut message = message(&json!({ "i": -1, "f": 1.5, "s": "x", "u": u64::MAX, "z": null, "l": [true] }));
        let properties = properties(&mut message).unwrap();
        let headers = properties.headers().as_ref().unwrap().inner();
        assert_eq!(headers.get("i"), Some(&AMQPValue::LongLongInt(-1)));
        assert_eq!(headers.get("f"), Some(&AMQPValue::Double(1.5)));
        assert_eq!(headers.get("s"), Some(&AMQPValue::LongString("x".into())));
        assert_eq!(headers.get("u"), Some(&AMQPValue::LongString("18446744073709551615".into())));
        assert_eq!(headers.get("z"), Some(&AMQPValue::Void));
        assert_eq!(headers.get("l"), Some(&AMQPValue::FieldArray(vec![AMQPValue::Boolean(true)].into())));
        assert_eq!(headers.get(ATTEMPT_HEADER), Some(&AMQPValue::LongLongInt(1)));
        assert_eq!(headers.get(ID_HEADER), Some(&AMQPValue::LongString("7".into())));
        assert_eq!(properties.delivery_mode(), &Some(2));
        assert_eq!(properties.timestamp(), &Some(1_700_000_000));
    }

    #[test]
    fn what_amqp_cannot_carry_is_refused_by_name_and_size() {
        let class = |message: &Message| admit(message, 100).map_err(|trouble| trouble.class);
        assert_eq!(class(&message(&json!({}))), Ok(()));

        let mut long_key = message(&json!({}));
        long_key.address[1].text = "k".repeat(300).into();
        let trouble = admit(&long_key, 100).unwrap_err();
        assert_eq!(
            (trouble.class, trouble.error.as_str()),
            ("too_long", "the routing key has 300 bytes; AMQP carries 255")
        );
        long_key.address[1].text = "é".repeat(128).into();
        assert_eq!(class(&long_key), Err("too_long"), "bytes count, not characters");
        long_key.address[1].text = "k".repeat(255).into();
        assert_eq!(class(&long_key), Ok(()));

        let mut large = message(&json!({}));
        large.body = vec![0; 101].into();
        assert_eq!(admit(&large, 100).unwrap_err().error, "the payload has 101 bytes; the sink's max_message is 100");

        assert_eq!(class(&message(&json!({ "n".repeat(256): 1 }))), Err("too_long"));
        assert_eq!(class(&message(&json!({ "a": [{ "n".repeat(256): 1 }] }))), Err("too_long"));
        assert_eq!(class(&message(&json!({ "a": "x".repeat(200_000) }))), Err("headers_too_large"));
        let room = usize::try_from(FRAME_MAX).unwrap() - FRAME_OVERHEAD - header_len(&message(&json!({ "a": "" })));
        assert_eq!(class(&message(&json!({ "a": "x".repeat(room) }))), Ok(()));
        assert_eq!(class(&message(&json!({ "a": "x".repeat(room + 1) }))), Err("headers_too_large"));
    }

    #[test]
    fn rows_may_not_set_what_the_broker_or_we_act_upon() {
        for name in ["CC", "BCC", "x-death", "outbill-id", "Outbill-Attempt", "OUTBILL-", "x-first-death-reason"] {
            assert_eq!(admit(&message(&json!({ name: "x" })), 100).unwrap_err().class, "reserved_header", "{name}");
        }
        for name in ["cc", "x-delay", "traceparent", "outbil", "x-stream-filter-value", "é", "outbillé"] {
            assert_eq!(admit(&message(&json!({ name: "x" })), 100), Ok(()), "{name}");
        }
    }
}
