//! The API over REST: the same messages as JSON.

use axum::Router;

use crate::api::Api;

pub(crate) fn router(_api: &Api) -> Router {
    Router::new()
}
