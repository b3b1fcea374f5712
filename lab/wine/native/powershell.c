/* powershell.exe that fails loudly. Wine's own does nothing and succeeds, so a script that "worked" would prove nothing. */
#include <stdio.h>
#include <windows.h>

int main(void)
{
    fprintf(stderr, "powershell.exe: there is no PowerShell on a Wine host; it was asked for: %s\n", GetCommandLineA());
    return 97;
}
