// Opens the row of a table that is clicked, and with Enter the one that the arrow keys have led to.
// Streamlit reports a selected cell alike, whether it was clicked or an arrow key led there; what it
// reports of rows is only their selection, which has a keyboard shortcut: Shift and the space bar.
const HEADER = 36, MARKERS = 33;  // pixels of Streamlit's header and of its column of boxes

export default function ({ data }) {
  const within = (event) =>
    event.target instanceof Element && !event.target.closest("input, textarea") &&  // the table's search
    event.target.closest(`.st-key-${data.table} .stDataFrameGlideDataEditor, .st-key-${data.table} canvas`);
  const select = (near) => near.closest('[data-testid="stDataFrame"]').querySelector("canvas").dispatchEvent(
    new KeyboardEvent("keydown", { key: " ", code: "Space", shiftKey: true, bubbles: true, cancelable: true }));
  const clicked = (event) => {
    const near = within(event);
    if (!near) return;
    const { left, top } = near.getBoundingClientRect();
    // The header sorts or selects a column, and the row's box selects by itself.
    if (event.clientY - top > HEADER && event.clientX - left > MARKERS) select(near);
  };
  const pressed = (event) => {
    const near = event.key === "Enter" && within(event);
    if (!near) return;
    event.stopPropagation();
    event.preventDefault();
    select(near);
  };
  document.addEventListener("click", clicked);
  document.addEventListener("keydown", pressed, true);
  return () => {
    document.removeEventListener("click", clicked);
    document.removeEventListener("keydown", pressed, true);
  };
}
