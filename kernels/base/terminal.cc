#include "kernels/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace tandem {

size_t TerminalColumns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace tandem
