// Sort a table by the column whose heading is pressed; rows without a value stay last.
document.querySelectorAll("table").forEach(function (table) {
  table.querySelectorAll("thead button").forEach(function (button, column) {
    button.addEventListener("click", function () {
      var heading = button.closest("th");
      var falling = heading.getAttribute("aria-sort") === "ascending";
      table.querySelectorAll("th[aria-sort]").forEach(function (other) {
        other.removeAttribute("aria-sort");
      });
      heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
      var body = table.tBodies[0];
      var key = function (row) {
        return row.cells[column].dataset.key;
      };
      var rows = Array.from(body.rows);
      var numeric = rows.every(function (row) {
        return !isNaN(key(row));
      });
      rows.sort(function (a, b) {
        var x = key(a);
        var y = key(b);
        if (x === "" || y === "") {
          return (x === "") - (y === "");
        }
        var order = numeric ? x - y : x.localeCompare(y, "en", { numeric: true });
        return falling ? -order : order;
      });
      rows.forEach(function (row) {
        body.appendChild(row);
      });
    });
  });
});
