// Tables that sort by click or key.
function sortBy(table, column) {
  const heading = table.tHead.rows[0].cells[column];
  const down = heading.getAttribute('aria-sort') === 'ascending';
  for (const cell of table.tHead.rows[0].cells) cell.setAttribute('aria-sort', 'none');
  heading.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  const key = (row) => {
    const value = row.cells[column].dataset.value;
    return value ? Number(value) : null;
  };
  const compare = (a, b) => {
    const [left, right] = [key(a), key(b)];
    if (left !== null && right !== null) return left - right;
    if (left !== null || right !== null) return left === null ? 1 : -1;
    return a.cells[column].textContent.localeCompare(b.cells[column].textContent, 'en', { numeric: true });
  };
  const body = table.tBodies[0];
  body.append(...[...body.rows].sort((a, b) => (down ? compare(b, a) : compare(a, b))));
}

for (const table of document.querySelectorAll('table.sortable')) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => cell.firstElementChild.addEventListener('click', () => sortBy(table, column)));
}
