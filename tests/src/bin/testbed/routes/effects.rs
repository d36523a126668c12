//! `/effects`: what happened.

use axum::Json;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::ledger::Row;
use crate::problem::Problem;

#[derive(Debug, Deserialize)]
pub(crate) struct Which {
    key: Option<String>,
    route: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Effects {
    count: usize,
    rows: Vec<Row>,
}

pub(crate) async fn list(State(app): State<App>, Query(which): Query<Which>) -> Result<Json<Effects>, Problem> {
    let rows = app.ledger.effects(which.key.as_deref(), which.route.as_deref()).await;
    let rows = rows.map_err(|error| Problem::ledger(&error))?;
    Ok(Json(Effects { count: rows.len(), rows }))
}
