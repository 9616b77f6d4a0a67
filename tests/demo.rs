//! The demo through the real binary: what a newcomer sees first has to be right.

use std::time::Duration;

use tokio::{process::Command, time::timeout};

/// The README's promise.
const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn the_demo_ends_within_twenty_seconds_with_a_ledger_that_balances() {
    let demo = Command::new(env!("CARGO_BIN_EXE_outbill"))
        .args(["demo", "--bills", "400", "--seed", "7"])
        .kill_on_drop(true)
        .output();
    let output = timeout(LIMIT, demo).await.unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let (_, ledger) = text.split_once("\nledger\n").unwrap();
    let number = |word: &str| -> u32 {
        let line = ledger.lines().find(|line| line.trim_start().starts_with(word)).unwrap();
        line.trim_start().trim_start_matches(word).split_whitespace().next().unwrap().parse().unwrap()
    };
    let (committed, rolled_back) = (number("committed"), number("rolled back"));
    assert_eq!(committed + rolled_back, 400, "{text}");
    assert!(rolled_back > 0, "{text}");
    assert_eq!(number("delivered") + number("failed"), committed, "{text}");
    assert_eq!((number("failed"), number("outages")), (1, 1), "{text}");
    assert!(number("retried") > 0, "{text}");
    assert!(text.contains("the consumer cannot read this message"), "the reason of the failure is shown: {text}");
    assert!(text.contains("The ledger balances"), "{text}");
    assert!(!text.contains('\r'), "no live line where there is no terminal: {text}");
}
