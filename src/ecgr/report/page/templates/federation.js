// Who holds what: clients by classes, with each client's number of examples beside it.
const federation = choices('federation-choice', data.federations.map((entry) => entry.label), () => show('plot-federation'));

register('plot-federation', (theme, element) => {
  const { counts, classes } = data.federations[Number(federation.value) || 0];
  const clients = counts.map((_, client) => client);
  const sizes = counts.map((row) => row.reduce((a, b) => a + b, 0));
  const most = Math.max(1, ...counts.flat());
  const narrowed = narrow.matches;
  rowHeight(element, clients.length, clients.length > 40 ? 10 : 30, 110);
  const labels = counts[0].map((_, number) => plain(classes[number] ?? number, narrowed ? 10 : 20));
  const written = counts.length * labels.length <= 400 && !narrowed;
  const marks = [0, 0.1, 0.4, 1].map((share) => Math.round(most * share));
  return {
    traces: [
      {
        type: 'heatmap', x: labels.map((_, at) => at), y: clients, z: counts.map((row) => row.map(Math.sqrt)), zmin: 0, zmax: Math.sqrt(most), xgap: 1, ygap: 1,
        colorscale: [[0, theme.damped], [1, theme.cell]], showscale: !written && !narrowed, customdata: counts.map((row) => row.map((count, at) => [count, labels[at]])),
        text: counts.map((row) => row.map((count) => (count && written ? String(count) : ''))), texttemplate: '%{text}', textfont: { size: 11, color: theme.ink },
        colorbar: { title: { text: 'examples', side: 'right', font: { size: 12 } }, thickness: 8, outlinewidth: 0, tickvals: marks.map(Math.sqrt), ticktext: marks.map(String), x: 1.02 },
        hovertemplate: 'client %{y}, class %{customdata[1]}: %{customdata[0]} examples<extra></extra>',
      },
      {
        type: 'bar', orientation: 'h', x: sizes, y: clients, xaxis: 'x2', marker: { color: theme.quiet, opacity: 0.55 }, text: sizes.map(String),
        textposition: clients.length > 40 ? 'none' : 'outside', cliponaxis: false, textfont: { size: 11 }, hovertemplate: 'client %{y}: %{x} examples<extra></extra>', showlegend: false,
      },
    ],
    layout: layout(theme, {
      margin: { l: 48, r: 12, t: 12, b: 48 }, bargap: 0.35,
      xaxis: axis(theme, 'class', { domain: [0, 0.73], tickvals: labels.length > 40 ? undefined : labels.map((_, at) => at), ticktext: labels.length > 40 ? undefined : labels, showgrid: false, fixedrange: true }),
      xaxis2: axis(theme, 'examples', { domain: [0.76, 1], showgrid: false, fixedrange: true, range: [0, 1.3 * Math.max(...sizes)], nticks: 3 }),
      yaxis: axis(theme, 'client', { autorange: 'reversed', tickvals: clients.length > 40 ? undefined : clients, tickformat: 'd', showgrid: false, fixedrange: true }),
    }),
  };
});
