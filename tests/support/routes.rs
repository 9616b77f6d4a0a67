//! Routes for simulations, whose messages are told apart by the bill's id alone.

use std::sync::Arc;

use outbill::{
    policy::{AttemptLog, Pattern, Retry, Selector},
    relay::Route,
    sink::Message,
};

/// The route of the types that match `pattern`, to the sink at `line`.
pub(crate) fn route(name: &str, pattern: &str, line: usize, retry: Retry) -> Route {
    Route {
        name: name.into(),
        selector: Selector { include: vec![Pattern::new(pattern)], except: Vec::new() },
        line,
        compose: Arc::new(|bill| {
            let id: Arc<str> = bill.id.to_string().into();
            let message = Message {
                message_id: Arc::clone(&id),
                bill_type: bill.bill_type.as_str().into(),
                bill_id: Arc::clone(&id),
                attempt: bill.seen.attempts() + 1,
                created_at_s: None,
                content_type: "text/plain".into(),
                address: Box::default(),
                headers: Vec::new(),
                body: bill.payload.clone().unwrap_or_default(),
            };
            (id, Ok(message))
        }),
        retry,
        attempt_log: AttemptLog::Failures,
    }
}
