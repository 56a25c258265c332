//! What the tests have in common.

/// The vectors of the format.
pub fn vectors() -> serde_json::Value {
    let text = include_str!("../../../tests/data/opa_vnic_vectors.json");
    serde_json::from_str(text).expect("the vectors are JSON")
}
