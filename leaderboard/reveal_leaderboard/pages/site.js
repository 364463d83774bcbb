// Small things that Gradio leaves out: a skip link, and a window title that follows the page's heading.
(() => {
  if (document.querySelector(".rv-skip")) return;
  const name = "REVEAL leaderboard";
  const skip = document.createElement("a");
  skip.className = "rv-skip";
  skip.href = "#content";
  skip.textContent = "Skip to the content";
  skip.addEventListener("click", (event) => {
    const heading = document.querySelector(".rv-head h1");
    if (!heading) return;
    event.preventDefault();
    heading.tabIndex = -1;
    heading.focus();
    heading.scrollIntoView();
  });
  const follow = () => {
    if (!document.documentElement.lang) document.documentElement.lang = "en";
    const heading = document.querySelector("h1[data-title]");
    const wanted = !heading || heading.dataset.title === name ? name : heading.dataset.title + " · " + name;
    if (document.title !== wanted) document.title = wanted;
  };
  document.body.prepend(skip);
  follow();
  new MutationObserver(follow).observe(document.body, {childList: true, subtree: true});
})();
