//! Bar and line charts as SVG inside a page, with the numbers beside them for those who cannot see it.

use std::fmt::{self, Write};

use moongate_core::{
    Scope,
    builtin::{ToolError, ToolOutput, ToolSpec},
    html::{self, Escaped},
    schema,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{Error, required};

/// More points cannot be told apart at this size.
const MAX_POINTS: usize = 500;
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
/// Room for the numbers on the left and the labels below.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 40.0;
/// Horizontal lines, the lowest and the highest value included.
const TICKS: u8 = 5;
/// Labels that fit below the chart, and characters of each.
const MAX_LABELS: usize = 10;
const LABEL_LENGTH: usize = 10;

#[derive(Deserialize)]
pub(crate) struct Chart {
    #[serde(rename = "type")]
    kind: ChartKind,
    title: Option<String>,
    data: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ChartKind {
    Bar,
    Line,
}

#[derive(Serialize, Deserialize)]
struct Point {
    label: String,
    value: f64,
}

pub(crate) fn tools() -> Vec<ToolSpec> {
    let point = json!({"type": "object", "additionalProperties": false, "required": ["label", "value"], "properties": {
        "label": {"type": "string", "maxLength": 256, "description": "What the value belongs to"},
        "value": {"type": "number", "description": "How much"},
    }});
    vec![ToolSpec {
        name: "visualize_data",
        title: "Visualize data",
        description: "Shows the user a bar or line chart of labelled values.",
        input_schema: schema::object(
            json!({
                "type": schema::choice(&["bar", "line"], "The kind of chart"),
                "data": {"type": "array", "minItems": 1, "maxItems": MAX_POINTS, "items": point,
                    "description": "The values in the order they are shown"},
                "title": {"type": "string", "maxLength": 512, "description": "A heading"},
            }),
            &["type", "data"],
        ),
        aliases: &[],
        scope: Scope::READ,
        destructive: false,
    }]
}

pub(crate) fn draw(chart: &Chart, id: &str) -> Result<ToolOutput, ToolError> {
    if chart.data.is_empty() {
        return Err(Error::Missing("data").into());
    }
    if let Some(title) = &chart.title {
        required("title", title)?;
    }
    let told =
        json!({"type": chart.kind, "title": chart.title, "data": chart.data, "dataPoints": chart.data.len()});
    let page = chart.page().expect("writing to a string cannot fail");
    let uri = format!("ui://visualizations/{id}");
    Ok(ToolOutput::new(format!("Showing the user a {}.", chart.name()), told)
        .with_block(html::resource(&uri, &page)))
}

/// From values to heights. Halves keep the span of the largest numbers finite.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(chart: &Chart) -> Self {
        // Bars stand on zero; a line shows its own range.
        let start = if chart.kind == ChartKind::Bar { Some(0.0) } else { None };
        let values = || chart.data.iter().map(|point| point.value).chain(start);
        Self { low: values().fold(f64::INFINITY, f64::min), high: values().fold(f64::NEG_INFINITY, f64::max) }
    }

    /// Where a value lies between the lowest (0) and the highest (1); in the middle when all are the same.
    fn share(&self, value: f64) -> f64 {
        let span = self.high / 2.0 - self.low / 2.0;
        if span > 0.0 { (value / 2.0 - self.low / 2.0) / span } else { 0.5 }
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (1.0 - self.share(value)) * (HEIGHT - TOP - BOTTOM)
    }

    /// The value at a share of the span.
    fn at(&self, share: f64) -> f64 {
        self.low * (1.0 - share) + self.high * share
    }
}

impl Chart {
    fn name(&self) -> String {
        let kind = if self.kind == ChartKind::Bar { "bar chart" } else { "line chart" };
        let points =
            if self.data.len() == 1 { "1 value".to_owned() } else { format!("{} values", self.data.len()) };
        match &self.title {
            Some(title) => format!("{kind} \"{title}\" of {points}"),
            None => format!("{kind} of {points}"),
        }
    }

    fn page(&self) -> Result<String, fmt::Error> {
        let title = self.title.as_deref().unwrap_or("Chart");
        let mut body = format!("<main><h1>{}</h1>", Escaped(title));
        self.svg(&mut body)?;
        body.push_str("<details><summary>Values</summary><table><tbody>");
        for point in &self.data {
            write!(
                body,
                "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
                Escaped(&point.label),
                point.value
            )?;
        }
        body.push_str("</tbody></table></details></main>");
        Ok(html::page(title, &body))
    }

    fn svg(&self, out: &mut String) -> fmt::Result {
        let name = self.name();
        write!(out, r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{}">"#, Escaped(&name))?;
        let scale = Scale::of(self);
        axis(out, &scale)?;
        match self.kind {
            ChartKind::Bar => self.bars(out, &scale)?,
            ChartKind::Line => self.line(out, &scale)?,
        }
        self.labels(out)?;
        out.push_str("</svg>");
        Ok(())
    }

    fn bars(&self, out: &mut String, scale: &Scale) -> fmt::Result {
        let width = (self.step() * 0.7).max(0.5);
        let zero = scale.y(0.0);
        for (index, point) in self.data.iter().enumerate() {
            let y = scale.y(point.value);
            // A value of zero still shows where its bar would be.
            let (top, height) = (y.min(zero), (y - zero).abs().max(1.0));
            write!(
                out,
                r#"<rect class="mark" x="{:.2}" y="{top:.2}" width="{width:.2}" height="{height:.2}">"#,
                self.x(index) - width / 2.0
            )?;
            tooltip(out, point)?;
            out.push_str("</rect>");
        }
        Ok(())
    }

    fn line(&self, out: &mut String, scale: &Scale) -> fmt::Result {
        out.push_str(r#"<polyline class="line" points=""#);
        for (index, point) in self.data.iter().enumerate() {
            write!(out, "{:.2},{:.2} ", self.x(index), scale.y(point.value))?;
        }
        out.push_str(r#""/>"#);
        for (index, point) in self.data.iter().enumerate() {
            let (x, y) = (self.x(index), scale.y(point.value));
            write!(out, r#"<circle class="mark" cx="{x:.2}" cy="{y:.2}" r="3">"#)?;
            tooltip(out, point)?;
            out.push_str("</circle>");
        }
        Ok(())
    }

    fn labels(&self, out: &mut String) -> fmt::Result {
        let every = self.data.len().div_ceil(MAX_LABELS).max(1);
        for (index, point) in self.data.iter().enumerate().step_by(every) {
            let mut label: String = point.label.chars().take(LABEL_LENGTH).collect();
            if label.len() < point.label.len() {
                label.push('…');
            }
            let (x, y) = (self.x(index), HEIGHT - BOTTOM + 20.0);
            write!(out, r#"<text x="{x:.2}" y="{y:.2}" text-anchor="middle">{}</text>"#, Escaped(&label))?;
        }
        Ok(())
    }

    /// The middle of the column of one point. Columns share the width evenly, so a single point is in the middle.
    fn x(&self, index: usize) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "there are at most a few hundred points")]
        let index = index as f64;
        LEFT + (index + 0.5) * self.step()
    }

    fn step(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "there are at most a few hundred points")]
        let count = self.data.len().max(1) as f64;
        (WIDTH - LEFT - RIGHT) / count
    }
}

fn axis(out: &mut String, scale: &Scale) -> fmt::Result {
    for tick in 0..TICKS {
        let value = scale.at(f64::from(tick) / f64::from(TICKS - 1));
        let (y, end) = (scale.y(value), WIDTH - RIGHT);
        write!(out, r#"<line class="axis" x1="{LEFT}" y1="{y:.2}" x2="{end}" y2="{y:.2}"/>"#)?;
        let (x, y) = (LEFT - 6.0, y + 4.0);
        write!(out, r#"<text x="{x}" y="{y:.2}" text-anchor="end">{}</text>"#, rounded(value))?;
        if scale.low >= scale.high {
            break;
        }
    }
    Ok(())
}

fn tooltip(out: &mut String, point: &Point) -> fmt::Result {
    write!(out, "<title>{}: {}</title>", Escaped(&point.label), point.value)
}

/// A number short enough for the axis.
fn rounded(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(0.001..1_000_000.0).contains(&size) {
        return format!("{value:.1e}");
    }
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chart(kind: ChartKind, values: &[f64]) -> Chart {
        let data = values.iter().map(|&value| Point { label: "l".into(), value }).collect();
        Chart { kind, title: None, data }
    }

    #[test]
    fn one_point_is_drawn_in_the_middle() {
        let page = chart(ChartKind::Line, &[42.0]).page().unwrap();
        assert!(page.contains(r#"<circle class="mark" cx="344.00" cy="168.00" r="3">"#), "{page}");
    }

    #[test]
    fn bars_stand_on_zero_in_both_directions() {
        let page = chart(ChartKind::Bar, &[10.0, -10.0, 0.0]).page().unwrap();
        assert_eq!(page.matches("<rect").count(), 3);
        assert!(page.contains(r#"y="16.00" width="130.67" height="152.00""#), "{page}");
        assert!(page.contains(r#"y="168.00" width="130.67" height="152.00""#), "{page}");
    }

    #[test]
    fn numbers_on_the_axis_are_short() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.5, "1.5"),
            (12.0, "12"),
            (0.333_333, "0.333"),
            (1e9, "1.0e9"),
            (-2.5e-9, "-2.5e-9"),
        ] {
            assert_eq!(rounded(value), expected);
        }
    }

    proptest! {
        #[test]
        fn every_point_lies_inside_whatever_the_values(
            values in prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::ZERO, 1..40),
            bar in any::<bool>(),
        ) {
            let chart = chart(if bar { ChartKind::Bar } else { ChartKind::Line }, &values);
            let page = chart.page().unwrap();
            prop_assert!(!page.contains("NaN") && !page.contains("inf,") && !page.contains("\"inf"));
            let scale = Scale::of(&chart);
            for (index, point) in chart.data.iter().enumerate() {
                prop_assert!((TOP - 0.01..=HEIGHT - BOTTOM + 0.01).contains(&scale.y(point.value)));
                prop_assert!((LEFT..=WIDTH - RIGHT).contains(&chart.x(index)));
            }
        }
    }
}
