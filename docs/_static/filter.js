// Long tables get a field that shows the rows in which all of its words occur.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table")) {
    const rows = [...table.querySelectorAll("tbody tr")];
    if (rows.length < 60) continue;
    const field = document.createElement("input");
    field.type = "search";
    field.className = "form-control skdp-filter";
    field.placeholder = `Filter ${rows.length} rows, for example: Scaler leaks`;
    field.setAttribute("aria-label", "Filter the rows of the table");
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
    (table.closest(".pst-scrollable-table-container") ?? table).before(field);
  }
});
