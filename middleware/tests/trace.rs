//! The trace of a layer: what came of every request, by the route's pattern, and nothing of what the request said.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod common;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use common::{KEY, Rig, charge, send};
use http::Request;
use idempotency::trace::TraceWriter;
use tempfile::TempDir;

#[tokio::test]
async fn each_request_is_a_line_with_the_pattern_of_its_route() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("trace.csv");
    let writer = TraceWriter::options().create(&path).unwrap();
    let rig = Rig::new();
    let handler = || async { (http::StatusCode::CREATED, "x".repeat(500)) };
    let layer = rig.layer().trace(writer.route("elsewhere"));
    let app = Router::new().route("/orders/{order}/charge", post(handler)).layer(layer.clone());
    let order =
        |key: &str| Request::post("/orders/4711/charge?note=secret").header(KEY, key).body(Body::empty()).unwrap();
    for key in ["key-one", "key-one", "key-two"] {
        assert_eq!(send(&app, order(key)).await.status, 201);
    }
    // Outside of a router nobody knows a pattern.
    send(&rig.counting(layer), charge("key-three")).await;
    // A request without a key is not protected, and not an arrival.
    send(&app, Request::post("/orders/4711/charge").body(Body::empty()).unwrap()).await;
    writer.flush();

    let text = std::fs::read_to_string(&path).unwrap();
    for raw in ["key-", "4711", "secret", "note"] {
        assert!(!text.contains(raw), "{raw} is in the trace");
    }
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines[0], ["time", "key", "size", "route", "scope", "took_ms"]);
    let ran: Vec<bool> = lines[1..].iter().map(|line| !line[5].is_empty()).collect();
    assert_eq!(ran, [true, false, true, true]);
    let routes: Vec<&str> = lines[1..].iter().map(|line| line[3]).collect();
    assert_eq!(routes[..3], ["POST /orders/{order}/charge"; 3]);
    assert_eq!(routes[3], "elsewhere");
    assert_eq!((lines[1][1], lines[1][2]), (lines[2][1], lines[2][2]));
    assert!(lines[1][2].parse::<usize>().unwrap() > 500, "the size of what is recorded: {}", lines[1][2]);
    assert_ne!(lines[1][1], lines[3][1]);
}
