// Who holds what: clients by classes where there are classes, with each client's number of examples beside it.
const federation = choices('federation-choice', data.federations.map((entry) => entry.label), () => show('plot-federation'));

function classMap(theme, counts, classes, written) {
  const most = Math.max(1, ...counts.flat());
  const marks = [0, 0.1, 0.4, 1].map((share) => Math.round(most * share));
  return {
    type: 'heatmap', x: classes.map((_, at) => at), y: counts.map((_, client) => client), z: counts.map((row) => row.map(Math.sqrt)), zmin: 0, zmax: Math.sqrt(most), xgap: 1, ygap: 1,
    colorscale: [[0, theme.damped], [1, theme.cell]], showscale: !written && !narrow.matches, customdata: counts.map((row) => row.map((count, at) => [count, classes[at]])),
    text: counts.map((row) => row.map((count) => (count && written ? String(count) : ''))), texttemplate: '%{text}', textfont: { size: 11, color: theme.ink },
    colorbar: { title: { text: 'examples', side: 'right', font: { size: 12 } }, thickness: 8, outlinewidth: 0, tickvals: marks.map(Math.sqrt), ticktext: marks.map(String), x: 1.02 },
    hovertemplate: 'client %{y}, class %{customdata[1]}: %{customdata[0]} examples<extra></extra>',
  };
}

register('plot-federation', (theme, element) => {
  const { counts, classes } = data.federations[Number(federation.value) || 0];
  const clients = counts.map((_, client) => client);
  const sizes = counts.map((row) => row.reduce((a, b) => a + b, 0));
  const many = clients.length > 40;
  rowHeight(element, clients.length, many ? 10 : 30, 110);
  const mapped = classes.length > 0 && counts[0].length > 1;
  const labels = mapped ? counts[0].map((_, number) => plain(classes[number] ?? number, narrow.matches ? 10 : 20)) : [];
  const written = counts.length * labels.length <= 400 && !narrow.matches;
  const few = labels.length <= 40;
  return {
    traces: [
      ...(mapped ? [classMap(theme, counts, labels, written)] : []),
      {
        type: 'bar', orientation: 'h', x: sizes, y: clients, xaxis: 'x2', marker: { color: theme.quiet, opacity: 0.55 }, text: sizes.map(String),
        textposition: many ? 'none' : 'outside', cliponaxis: false, textfont: { size: 11 }, hovertemplate: 'client %{y}: %{x} examples<extra></extra>', showlegend: false,
      },
    ],
    layout: layout(theme, {
      margin: { l: 48, r: 12, t: 12, b: 48 }, bargap: 0.35,
      ...(mapped ? { xaxis: axis(theme, 'class', { domain: [0, 0.73], tickvals: few ? labels.map((_, at) => at) : undefined, ticktext: few ? labels : undefined, showgrid: false, fixedrange: true }) } : {}),
      xaxis2: axis(theme, 'examples', { domain: mapped ? [0.76, 1] : [0, 1], showgrid: false, fixedrange: true, range: [0, 1.3 * Math.max(...sizes)], nticks: 3 }),
      yaxis: axis(theme, 'client', { autorange: 'reversed', tickvals: many ? undefined : clients, tickformat: 'd', showgrid: false, fixedrange: true }),
    }),
  };
});
