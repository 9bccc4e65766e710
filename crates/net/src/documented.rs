//! Tables of documents, for tests that compare them with the code.

/// Cells of the rows of the table whose first heading is `heading`.
pub(crate) fn rows(doc: &'static str, heading: &str) -> Vec<Vec<&'static str>> {
    let head = format!("| {heading} |");
    let row = |l: &'static str| l.strip_prefix("| ")?.strip_suffix(" |").map(|l| l.split(" | ").collect());
    doc.lines().skip_while(|l| !l.starts_with(&head)).skip(2).map_while(row).collect()
}
