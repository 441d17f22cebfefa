// Length or direction: the baseline's curve over the length of the server's steps, and each method at its own length.
const LENGTHS = [0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32];

// A method's name stands away from the curve, above it or below it, inside the picture, and not on the next method.
function namePlace(entry, method) {
  const nearest = entry.band.reduce((best, row) => (Math.abs(row[0] - method.length) < Math.abs(best[0] - method.length) ? row : best));
  const next = entry.methods.some((other) => other.length > method.length && other.length < 2 * method.length);
  return `${method.value >= nearest[1] ? 'top' : 'bottom'} ${next || method.length > entry.far ? 'left' : 'right'}`;
}

data.lengths.forEach((entry, number) => {
  register(`plot-length-${number}`, (theme) => {
    const line = armColour(theme, 0);
    const column = (at) => entry.band.map((row) => row[at]);
    const name = plain(entry.baseline);
    const points = entry.methods.map((method) => ({
      x: [method.length], y: [method.value], type: 'scatter', mode: 'markers+text', name: plain(method.label), text: [plain(method.label, narrow.matches ? 16 : 36)],
      textposition: namePlace(entry, method), textfont: { size: 12.5, color: verdictColour(theme, method.verdict) }, cliponaxis: false,
      marker: { size: 11, symbol: 'diamond', color: verdictColour(theme, method.verdict) },
      error_y: method.interval ? {
        type: 'data', symmetric: false, thickness: 2.5, width: 0, color: verdictColour(theme, method.verdict),
        array: [method.interval[1] - method.value], arrayminus: [method.value - method.interval[0]],
      } : undefined,
      customdata: [[plain(method.verdict_text), plain(method.parts, 200)]],
      hovertemplate: '%{customdata[0]}<br>%{customdata[1]}<extra>%{fullData.name}</extra>', showlegend: false,
    }));
    return {
      traces: [
        band(column(0), column(2), column(3), line),
        { x: column(0), y: column(1), type: 'scatter', mode: 'lines', name, line: { color: line, width: 2.25 }, hovertemplate: '%{y:.4~g}' },
        {
          x: entry.knots.map((knot) => knot[0]), y: entry.knots.map((knot) => knot[1]), type: 'scatter', mode: 'markers', name: 'where it was run', marker: { color: line, size: 6 },
          hovertemplate: '%{y:.4~g} at %{x:.3~g}<extra></extra>',
        },
        ...points,
      ],
      layout: layout(theme, {
        hovermode: 'closest', showlegend: true,
        xaxis: axis(theme, 'length of all server steps, in units of the baseline’s', { type: 'log', tickvals: LENGTHS, ticktext: LENGTHS.map(String) }),
        yaxis: axis(theme, plain(entry.metric), { rangemode: 'normal' }),
      }),
    };
  });
});
