//! Does the balancer even out the OSDs of a pool with data, while every PG serves and nothing is lost?

use sim::placement::Operator;

fn ok(o: &mut Operator, json: &str) {
    o.command(json).unwrap();
}

/// Ten OSDs, of which CRUSH gives some far more than others; one leaves and comes back.
fn even_out(coded: bool) {
    let mut o = Operator::new(10, 3, coded.then_some((2, 1)), 64).unwrap();
    let by_crush = o.spread();
    assert!(by_crush > 3, "CRUSH alone spreads by {by_crush}");
    ok(&mut o, r#"{"prefix":"osd set-require-min-compat-client","version":"luminous"}"#);
    assert!(o.wait_spread(1), "coded {coded}: {} instead of {by_crush}", o.spread());
    o.settle().unwrap();
    assert!(!o.map().pg_upmap_items.is_empty(), "by upmap");
    for what in ["out", "in"] {
        ok(&mut o, &format!(r#"{{"prefix":"osd {what}","ids":["3"]}}"#));
        o.settle().unwrap();
        assert!(o.wait_spread(1), "coded {coded}, {what}: {}", o.spread());
        o.settle().unwrap();
    }
    o.judge().unwrap();
}

#[test]
fn copies_are_evened_out() {
    even_out(false);
}

#[test]
fn shards_are_evened_out() {
    even_out(true);
}
