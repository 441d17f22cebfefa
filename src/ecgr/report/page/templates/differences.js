// Paired differences as dots, and tables that sort by click or key.
register('plot-differences', (theme, element) => {
  const pairs = data.pairs;
  const rows = pairs.map((_, number) => pairs.length - 1 - number);
  rowHeight(element, pairs.length, 56, 90);
  const known = pairs.flatMap((pair, number) => pair.differences.map((value, at) => ({ value, seed: pair.seeds[at], pair, row: rows[number] })))
    .filter((dot) => dot.value !== null);
  const means = pairs.map((pair, number) => ({ pair, row: rows[number] })).filter(({ pair }) => pair.mean !== null);
  const ends = [0, -1.2 * data.margin, 1.2 * data.margin, ...known.map((dot) => dot.value), ...pairs.flatMap((pair) => pair.interval || [])];
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const room = 0.04 * (most - least);
  return {
    traces: [
      {
        type: 'scatter', mode: 'markers', x: means.map(({ pair }) => pair.mean), y: means.map(({ row }) => row - 0.14),
        marker: { symbol: 'diamond', size: 11, color: means.map(({ pair }) => armColour(theme, pair.colour)) },
        error_x: {
          type: 'data', symmetric: false, thickness: 2.5, width: 0, color: theme.quiet,
          array: means.map(({ pair }) => (pair.interval ? pair.interval[1] - pair.mean : 0)),
          arrayminus: means.map(({ pair }) => (pair.interval ? pair.mean - pair.interval[0] : 0)),
        },
        customdata: means.map(({ pair }) => [pair.verdict, pair.interval ? `${pair.interval[0].toFixed(2)} to ${pair.interval[1].toFixed(2)}` : 'no interval']),
        hovertemplate: 'mean %{x:+.2f} points (%{customdata[1]})<br>%{customdata[0]}<extra></extra>',
      },
      {
        type: 'scatter', mode: 'markers', x: known.map((dot) => dot.value), y: known.map((dot) => dot.row + 0.14),
        marker: { size: 9, color: known.map((dot) => faint(armColour(theme, dot.pair.colour), 0.6)), line: { width: 1, color: theme.paper } },
        customdata: known.map((dot) => dot.seed), hovertemplate: 'seed %{customdata}: %{x:+.2f} points<extra></extra>',
      },
    ],
    layout: layout(theme, {
      showlegend: false, hovermode: 'closest', margin: { l: 48, r: 12, t: 12, b: 48 },
      xaxis: axis(theme, narrow.matches ? 'difference, points of accuracy' : 'regulated minus baseline, points of accuracy', { tickformat: '~g', range: [least - room, most + room], zeroline: true, zerolinecolor: theme.quiet, zerolinewidth: 1 }),
      yaxis: axis(theme, '', {
        tickvals: rows, ticktext: pairs.map((pair) => plain(pair.label, narrow.matches ? 18 : 48)), range: [-0.6, pairs.length - 0.4],
        showgrid: false, fixedrange: true, tickfont: { size: 13, color: theme.ink },
      }),
      shapes: [{ type: 'rect', xref: 'x', yref: 'paper', x0: -data.margin, x1: data.margin, y0: 0, y1: 1, fillcolor: theme.strip, line: { width: 0 }, layer: 'below' }],
    }),
  };
});

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
