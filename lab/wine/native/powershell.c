/* A powershell.exe that always fails with an error message. Wine's own powershell.exe does nothing and succeeds, so
 * a test would not notice that a script did not run. */
#include <stdio.h>
#include <windows.h>

int main(void)
{
    fprintf(stderr, "powershell.exe: there is no PowerShell on a Wine host; it was asked for: %s\n", GetCommandLineA());
    return 97;
}
